# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
# er_add_test(NAME name SOURCES a.c ... [LIBS target ...] [LABELS label ...] [TIMEOUT seconds])
#
#	A cmocka program build/tests/NAME, registered with ctest under the same name. The label
#	defaults to the folder's name. TIMEOUT defaults to 120, times 4 under a sanitizer.
#
# er_add_fuzzer(NAME name SOURCES a.c ... [LIBS target ...] [CORPUS dir])
#
#	SOURCES define LLVMFuzzerTestOneInput. Where libFuzzer can be had (clang with
#	ER_SANITIZE=address) the program is a real fuzzer, and ctest runs it for ER_FUZZ_SECONDS
#	from the corpus. Elsewhere it is linked with cmake/fuzz_replay.c, and ctest replays the
#	corpus, so no input that once failed is forgotten. ctest's name is NAME, its label fuzz.

include(FindPkgConfig)
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

if(ER_SANITIZE)
	set(ER_TIMEOUT_FACTOR 4)
else()
	set(ER_TIMEOUT_FACTOR 1)
endif()

# Reports end the test with a code of their own, and UBSan names the place. A thread that ends by
# pthread_cancel() leaves marks on its stack, into which ASan's own signal stack must not run.
set(ER_TEST_ENVIRONMENT
	"ASAN_OPTIONS=exitcode=99:allocator_may_return_null=1:use_sigaltstack=0"
	"LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/cmake/lsan.supp:print_suppressions=0"
	"UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1"
	"TSAN_OPTIONS=halt_on_error=1:exitcode=66:suppressions=${CMAKE_SOURCE_DIR}/cmake/tsan.supp")

function(er_set_test_properties name label timeout)
	math(EXPR seconds "${timeout} * ${ER_TIMEOUT_FACTOR}")
	set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds} LABELS "${label}"
		ENVIRONMENT "${ER_TEST_ENVIRONMENT}" SKIP_RETURN_CODE 77)
endfunction()

function(er_add_test)
	cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
	if(NOT T_NAME OR NOT T_SOURCES)
		message(FATAL_ERROR "er_add_test needs NAME and SOURCES")
	endif()
	if(NOT T_TIMEOUT)
		set(T_TIMEOUT 120)
	endif()
	if(NOT T_LABELS)
		get_filename_component(T_LABELS ${CMAKE_CURRENT_SOURCE_DIR} NAME)
	endif()
	add_executable(${T_NAME} ${T_SOURCES})
	target_link_libraries(${T_NAME} PRIVATE ${T_LIBS} PkgConfig::CMOCKA)
	set_target_properties(${T_NAME} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
	add_test(NAME ${T_NAME} COMMAND ${T_NAME})
	er_set_test_properties(${T_NAME} "${T_LABELS}" ${T_TIMEOUT})
endfunction()

function(er_add_fuzzer)
	cmake_parse_arguments(F "" "NAME;CORPUS" "SOURCES;LIBS" ${ARGN})
	if(NOT F_NAME OR NOT F_SOURCES)
		message(FATAL_ERROR "er_add_fuzzer needs NAME and SOURCES")
	endif()
	set(corpus)
	if(F_CORPUS)
		get_filename_component(corpus ${F_CORPUS} ABSOLUTE)
		if(NOT IS_DIRECTORY ${corpus})
			message(FATAL_ERROR "er_add_fuzzer ${F_NAME}: CORPUS ${corpus} is no folder")
		endif()
	endif()
	if(ER_LIBFUZZER)
		# New inputs go to the build folder; the corpus in the source tree is only read.
		set(found ${CMAKE_BINARY_DIR}/fuzz/${F_NAME}.corpus)
		file(MAKE_DIRECTORY ${found})
		add_executable(${F_NAME} ${F_SOURCES})
		target_link_options(${F_NAME} PRIVATE -fsanitize=fuzzer)
		add_test(NAME ${F_NAME} COMMAND ${F_NAME} -max_total_time=${ER_FUZZ_SECONDS}
			-timeout=20 -rss_limit_mb=2048 -print_final_stats=1
			-artifact_prefix=${CMAKE_BINARY_DIR}/fuzz/${F_NAME}- ${found} ${corpus})
	else()
		add_executable(${F_NAME} ${F_SOURCES} ${CMAKE_SOURCE_DIR}/cmake/fuzz_replay.c)
		add_test(NAME ${F_NAME} COMMAND ${F_NAME} ${corpus})
	endif()
	target_link_libraries(${F_NAME} PRIVATE ${F_LIBS})
	set_target_properties(${F_NAME} PROPERTIES
		RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
	er_set_test_properties(${F_NAME} fuzz 120)
endfunction()
