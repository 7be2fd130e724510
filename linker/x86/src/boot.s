# From the loader to Rust. AT&T syntax.
#
# PVH (xen/include/public/arch-x86/hvm/start_info.h): 32-bit protected mode, flat segments, paging and interrupts off, EBX = the
# address of the start information. Leaves in long mode with SSE, the first 4 GiB mapped onto themselves, guards left out.

.section .note.Xen, "a", @note
.balign 4
.long 4, 8, 18                       # bytes of name and value, XEN_ELFNOTE_PHYS32_ENTRY
.asciz "Xen"
.quad start_32

.section .boot, "ax", @progbits
.code32
.global start_32
start_32:
    cli
    cld
    mov  $bss_start, %edi            # page tables are among it
    mov  $bss_end, %ecx
    sub  %edi, %ecx
    shr  $2, %ecx
    xor  %eax, %eax
    rep stosl
    mov  $stack_top, %esp

    movl $page_pointers + 3, page_map
    mov  $page_directories + 3, %eax # 4 directories, 2 MiB a page, present and writable
    mov  $page_pointers, %edi
    mov  $4, %ecx
1:  mov  %eax, (%edi)
    add  $0x1000, %eax
    add  $8, %edi
    loop 1b
    mov  $0x83, %eax
    mov  $page_directories, %edi
    mov  $2048, %ecx
2:  mov  %eax, (%edi)
    add  $0x200000, %eax
    add  $8, %edi
    loop 2b

    mov  $GUARDED + 3, %eax          # the stacks' 2 MiB, 4 KiB a page
    mov  $stack_pages, %edi
    mov  $512, %ecx
3:  mov  %eax, (%edi)
    add  $0x1000, %eax
    add  $8, %edi
    loop 3b
    mov  $GUARDED, %eax
    shr  $21, %eax
    movl $stack_pages + 3, page_directories(, %eax, 8)
.irp guard, guard_fault, guard_timer, guard_main
    mov  $\guard, %eax
    sub  $GUARDED, %eax
    shr  $12, %eax
    movl $0, stack_pages(, %eax, 8)
.endr

    mov  %cr4, %eax
    or   $0x620, %eax                # PAE, OSFXSR, OSXMMEXCPT
    mov  %eax, %cr4
    mov  $page_map, %eax
    mov  %eax, %cr3
    mov  $0xC0000080, %ecx           # EFER.LME
    rdmsr
    or   $0x100, %eax
    wrmsr
    mov  %cr0, %eax
    and  $0xfffffffb, %eax           # not EM
    or   $0x80010023, %eax           # PG, WP, NE, MP, PE
    mov  %eax, %cr0
    lgdt first_descriptors
    ljmpl $0x08, $start_64

.code64
start_64:
    mov  $0x10, %eax
    mov  %eax, %ds
    mov  %eax, %es
    mov  %eax, %ss
    xor  %eax, %eax
    mov  %eax, %fs
    mov  %eax, %gs
    mov  $stack_top, %esp
    xor  %ebp, %ebp
    mov  %ebx, %edi
    call enter
4:  cli
    hlt
    jmp  4b

# One entry of 16 bytes for each exception: leaves its number and error code, 0 where it has none.
.balign 16
.global exceptions
exceptions:
.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
.balign 16
    .if (\n == 8) || ((\n >= 10) && (\n <= 14)) || (\n == 17) || (\n == 21) || (\n == 29) || (\n == 30)
    .else
    push $0
    .endif
    push $\n
    jmp  exception
.endr
exception:
    pop  %rdi
    pop  %rsi
    mov  (%rsp), %rdx
    mov  %cr2, %rcx
    and  $-16, %rsp
    call trap
5:  hlt
    jmp  5b

# Counts, and shows the count where BEAT points: the sign of life. Ends the interrupt at the local APIC.
.global timer_entry
timer_entry:
    push %rax
    push %rcx
    mov  BEATS(%rip), %ecx
    inc  %ecx
    mov  %ecx, BEATS(%rip)
    mov  BEAT(%rip), %rax
    test %rax, %rax
    jz   6f
    mov  %ecx, (%rax)
6:  mov  $0xfee000b0, %eax
    movl $0, (%rax)
    pop  %rcx
    pop  %rax
    iretq

.section .rodata.boot, "a", @progbits
.balign 8
descriptors: .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff
first_descriptors:
    .word 23
    .long descriptors

.section .bss.boot, "aw", @nobits
.balign 4096
.global page_map
page_map:         .skip 4096
page_pointers:    .skip 4096
page_directories: .skip 4 * 4096
stack_pages:      .skip 4096
