"""Reading what clang prints for a Mac: its labels, comments and directives are not gcc's."""

from __future__ import annotations

from nbcompile.view.facts.assembly import machine_code

CLANG = """\
	.build_version macos, 15, 0
	.section	__TEXT,__text,regular,pure_instructions
	.globl	_helper                         ; -- Begin function helper
	.p2align	2
_helper:                                ; @helper
Lfunc_begin0:
	.file	1 "/tmp" "above.c"
	.cfi_startproc
; %bb.0:
	.loc	1 1 3 prologue_end              ; above.c:1:3
	ret
	.cfi_endproc
	.globl	_k0_top                         ; -- Begin function k0_top
	.p2align	2
_k0_top:                                ; @k0_top
Lfunc_begin1:
	.cfi_startproc
; %bb.0:
	.file	2 "/work" "kernel"
	.loc	2 2 3 prologue_end              ; kernel:2:3
	sub	x8, x1, x0
	.loc	2 0 29 is_stmt 0                ; kernel:0:29
	mov	x8, #0                          ; =0x0
LBB0_2:                                 ; =>This Inner Loop Header: Depth=1
	.loc	2 3 16                          ; kernel:3:16
	ldr	s1, [x0, x8]
	.loc	2 2 22                          ; kernel:2:22
	fcmp	s1, s1
Ltmp0:
	.loc	1 2 54 is_stmt 1                ; above.c:2:54 @[ kernel:3:12 ]
	fccmp	s1, s0, #0, vc
	.loc	2 2 3                           ; kernel:2:3
	b.ne	LBB0_2
; %bb.3:
	.loc	2 4 1                           ; kernel:4:1
	ret
Ltmp2:
Lfunc_end1:
	.cfi_endproc
	.section	__DWARF,__debug_abbrev,regular,debug
	.byte	1
"""


def test_a_listing_for_a_mac() -> None:
    read = machine_code(CLANG, "kernel")
    assert [(row.shown, row.place[1] if row.place else None) for row in read.rows] == [
        ("_k0_top:", None),
        ("  sub  x8, x1, x0", 2),
        ("  mov  x8, #0  ; =0x0", 0),
        ("LBB0_2:", 0),
        ("  ldr  s1, [x0, x8]", 3),
        ("  fcmp  s1, s1", 2),
        ("  fccmp  s1, s0, #0, vc", 3),  # inlined: the place that it is inlined at
        ("  b.ne  LBB0_2", 2),
        ("  ret", 4),
    ]


def test_a_text_without_functions() -> None:
    assert machine_code("\t.text\n_x:\n\t.long 3\n", "kernel").rows == ()
