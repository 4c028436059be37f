// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Accesses that survive the loss of the memory. */
#include <string.h>

#include "adapter/core/umem.h"

#if defined(__SANITIZE_ADDRESS__)
#define UMEM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UMEM_ASAN 1
#endif
#endif
#ifdef UMEM_ASAN
#include <sanitizer/asan_interface.h>
#endif

#if defined(__x86_64__) && !defined(EA_UMEM_PORTABLE)

/* ------------------------------------------------------------------ known by the instruction */

/* Neither uses the stack, so the end of each may be reached from any of its instructions. */
bool umem_copy(void *dst, const void *src, size_t len);
bool umem_cmpxchg(uint64_t *p, uint64_t *old, uint64_t value);
extern const char umem_start[], umem_end[], umem_fault[];

__asm__(".text\n"
	"	.p2align 4\n"
	"	.hidden umem_copy\n"
	"	.hidden umem_cmpxchg\n"
	"	.hidden umem_start\n"
	"	.hidden umem_end\n"
	"	.hidden umem_fault\n"
	"	.globl umem_copy, umem_cmpxchg, umem_start, umem_end, umem_fault\n"
	"umem_start:\n"

	/* rdi: to, rsi: from, rdx: bytes; the last 16, 8, 4 or 2 overlap those before */
	"	.type umem_copy, @function\n"
	"umem_copy:\n"
	"	.cfi_startproc\n"
	"	cmpq $16, %rdx\n"
	"	jb 3f\n"
	"	leaq -16(%rsi,%rdx), %rcx\n"
	"	leaq -16(%rdi,%rdx), %r8\n"
	"	cmpq $64, %rdx\n"
	"	jb 2f\n"
	"	leaq -48(%r8), %r9\n"
	"1:	movups (%rsi), %xmm0\n"
	"	movups 16(%rsi), %xmm1\n"
	"	movups 32(%rsi), %xmm2\n"
	"	movups 48(%rsi), %xmm3\n"
	"	movups %xmm0, (%rdi)\n"
	"	movups %xmm1, 16(%rdi)\n"
	"	movups %xmm2, 32(%rdi)\n"
	"	movups %xmm3, 48(%rdi)\n"
	"	addq $64, %rsi\n"
	"	addq $64, %rdi\n"
	"	cmpq %r9, %rdi\n"
	"	jbe 1b\n"
	"	jmp 22f\n"
	"2:	movups (%rsi), %xmm0\n"
	"	movups %xmm0, (%rdi)\n"
	"	addq $16, %rsi\n"
	"	addq $16, %rdi\n"
	"22:	cmpq %r8, %rdi\n"
	"	jb 2b\n"
	"	movups (%rcx), %xmm0\n"
	"	movups %xmm0, (%r8)\n"
	"	movl $1, %eax\n"
	"	ret\n"
	"3:	cmpl $8, %edx\n"
	"	jb 4f\n"
	"	movq (%rsi), %rax\n"
	"	movq -8(%rsi,%rdx), %rcx\n"
	"	movq %rax, (%rdi)\n"
	"	movq %rcx, -8(%rdi,%rdx)\n"
	"	movl $1, %eax\n"
	"	ret\n"
	"4:	cmpl $4, %edx\n"
	"	jb 5f\n"
	"	movl (%rsi), %eax\n"
	"	movl -4(%rsi,%rdx), %ecx\n"
	"	movl %eax, (%rdi)\n"
	"	movl %ecx, -4(%rdi,%rdx)\n"
	"	movl $1, %eax\n"
	"	ret\n"
	"5:	testl %edx, %edx\n"
	"	je 6f\n"
	"	movzbl (%rsi), %eax\n"
	"	movb %al, (%rdi)\n"
	"	cmpl $1, %edx\n"
	"	je 6f\n"
	"	movzwl -2(%rsi,%rdx), %eax\n"
	"	movw %ax, -2(%rdi,%rdx)\n"
	"6:	movl $1, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size umem_copy, . - umem_copy\n"

	/* rdi: where, rsi: old, rdx: new */
	"	.type umem_cmpxchg, @function\n"
	"umem_cmpxchg:\n"
	"	.cfi_startproc\n"
	"	movq (%rsi), %rax\n"
	"	lock cmpxchgq %rdx, (%rdi)\n"
	"	movq %rax, (%rsi)\n"
	"	movl $1, %eax\n"
	"	ret\n"
	"umem_end:\n"
	"umem_fault:\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	"	.cfi_endproc\n"
	"	.size umem_cmpxchg, . - umem_cmpxchg\n");

bool ea_umem_recover(uintptr_t *pc)
{
	if (*pc < (uintptr_t)umem_start || *pc >= (uintptr_t)umem_end)
		return false;
	*pc = (uintptr_t)umem_fault;
	return true;
}

#else

/* ------------------------------------------------------------------ marked by the thread */

/* The access under way: what __builtin_setjmp() has stored, or NULL. */
static __thread void **guard __attribute__((tls_model("initial-exec")));

enum {
	JUMP_WORDS = 5 /* size of __builtin_setjmp()'s buffer */
};

#define guard_off()                                    \
	do {                                           \
		__asm__ __volatile__("" ::: "memory"); \
		*(void **volatile *)&guard = NULL;     \
	} while (0)

static bool umem_copy(void *dst, const void *src, size_t len)
{
	void *here[JUMP_WORDS];

	if (__builtin_setjmp(here)) {
		guard_off();
		return false;
	}
	*(void **volatile *)&guard = here;
	memcpy(dst, src, len);
	guard_off();
	return true;
}

/* A call, for the compiler knows no other way from which a jump could come. */
static __attribute__((noinline)) void do_cmpxchg(uint64_t *p, uint64_t *old, uint64_t value)
{
	__atomic_compare_exchange_n(p, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	__asm__ __volatile__("" ::: "memory");
}

static bool umem_cmpxchg(uint64_t *p, uint64_t *old, uint64_t value)
{
	void *here[JUMP_WORDS];

	if (__builtin_setjmp(here)) {
		guard_off();
		return false;
	}
	*(void **volatile *)&guard = here;
	do_cmpxchg(p, old, value);
	guard_off();
	return true;
}

bool ea_umem_recover(uintptr_t *pc)
{
	void **to = guard;

	(void)pc;
	if (!to)
		return false;
	__builtin_longjmp(to, 1);
}

#endif

bool ea_umem_copy(void *dst, const void *src, size_t len)
{
#ifdef UMEM_ASAN
	/* not instrumented: let the sanitizer's own function report what is wrong */
	if (__asan_region_is_poisoned(dst, len) || __asan_region_is_poisoned((void *)src, len))
		memcpy(dst, src, len);
#endif
	return umem_copy(dst, src, len);
}

bool ea_umem_cmpxchg(uint64_t *p, uint64_t *old, uint64_t value)
{
	return umem_cmpxchg(p, old, value);
}
