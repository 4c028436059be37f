/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the test is compiled with, by gcc or clang.  Under a sanitizer stack frames are large, what is freed is kept
 * for a while, and a child of fork() can do less.
 */
#ifndef TESTS_INSTRUMENTED_H
#define TESTS_INSTRUMENTED_H

#if defined(__SANITIZE_THREAD__)
#define INSTRUMENTED_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define INSTRUMENTED_TSAN 1
#endif
#endif
#ifndef INSTRUMENTED_TSAN
#define INSTRUMENTED_TSAN 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define INSTRUMENTED_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INSTRUMENTED_ASAN 1
#endif
#endif
#ifndef INSTRUMENTED_ASAN
#define INSTRUMENTED_ASAN 0
#endif

#define INSTRUMENTED (INSTRUMENTED_ASAN || INSTRUMENTED_TSAN)

#endif
