# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
# ER_SANITIZE: which run-time checker all code of this build folder is compiled with.
#
# ER_LIBFUZZER becomes TRUE where er_add_fuzzer can make a real fuzzer: clang, and ASan (whose
# run-time library also answers the coverage hooks in the shared libraries that no fuzzer links).

set(ER_LIBFUZZER FALSE)

if(ER_SANITIZE STREQUAL "address")
	add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined
		-fno-omit-frame-pointer)
	add_link_options(-fsanitize=address,undefined)
	if(CMAKE_C_COMPILER_ID MATCHES "Clang")
		include(CheckCSourceCompiles)
		set(CMAKE_REQUIRED_FLAGS "-fsanitize=fuzzer,address")
		check_c_source_compiles("
			#include <stddef.h>
			#include <stdint.h>
			int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
			int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
			{
				return data == NULL && size != 0;
			}" ER_HAVE_LIBFUZZER)
		unset(CMAKE_REQUIRED_FLAGS)
		if(ER_HAVE_LIBFUZZER)
			set(ER_LIBFUZZER TRUE)
			add_compile_options(-fsanitize=fuzzer-no-link)
		endif()
	endif()
elseif(ER_SANITIZE STREQUAL "thread")
	add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
	add_link_options(-fsanitize=thread)
elseif(NOT ER_SANITIZE STREQUAL "")
	message(FATAL_ERROR "ER_SANITIZE is \"${ER_SANITIZE}\": give address, thread or nothing")
endif()
