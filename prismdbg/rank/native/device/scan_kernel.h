// Made of scan_kernel.cu (sha256 86782fb8c10f82ae) by generate.py. Do not edit.
#pragma once

namespace prismdbg {

constexpr char kScanKernel[] = R"ptx(.version 7.0
.target sm_70
.address_size 64

	// .globl	prismdbg_scan

.visible .entry prismdbg_scan(
	.param .u64 prismdbg_scan_param_0,
	.param .u64 prismdbg_scan_param_1,
	.param .u64 prismdbg_scan_param_2,
	.param .u64 prismdbg_scan_param_3,
	.param .u32 prismdbg_scan_param_4,
	.param .u64 prismdbg_scan_param_5,
	.param .u64 prismdbg_scan_param_6,
	.param .u64 prismdbg_scan_param_7
)
{
	.reg .pred 	%p<70>;
	.reg .b32 	%r<214>;
	.reg .b64 	%rd<336>;
	// demoted variable
	.shared .align 8 .b8 _ZZ13prismdbg_scanE4sums[64];
	// demoted variable
	.shared .align 4 .b8 _ZZ13prismdbg_scanE5found[32];

	ld.param.u64 	%rd102, [prismdbg_scan_param_0];
	ld.param.u64 	%rd103, [prismdbg_scan_param_1];
	ld.param.u64 	%rd104, [prismdbg_scan_param_2];
	ld.param.u64 	%rd333, [prismdbg_scan_param_3];
	ld.param.u32 	%r61, [prismdbg_scan_param_4];
	ld.param.u64 	%rd106, [prismdbg_scan_param_5];
	ld.param.u64 	%rd109, [prismdbg_scan_param_6];
	ld.param.u64 	%rd107, [prismdbg_scan_param_7];
	cvta.to.global.u64 	%rd1, %rd104;
	cvta.to.global.u64 	%rd2, %rd102;
	cvta.to.global.u64 	%rd3, %rd109;
	mov.u32 	%r63, %ctaid.x;
	cvt.u64.u32 	%rd4, %r63;
	mul.wide.u32 	%rd5, %r63, 4096;
	mov.u32 	%r1, %tid.x;
	setp.gt.u32 	%p1, %r1, 4095;
	mov.u32 	%r202, 0;
	mov.u64 	%rd327, 0;
	@%p1 bra 	$L__BB0_50;

	mov.u32 	%r2, %ntid.x;
	setp.eq.s64 	%p2, %rd104, 0;
	@%p2 bra 	$L__BB0_32;

	setp.eq.s32 	%p3, %r61, 64;
	shl.b64 	%rd110, %rd4, 15;
	sub.s64 	%rd6, %rd110, %rd103;
	mov.u64 	%rd327, 0;
	@%p3 bra 	$L__BB0_19;
	bra.uni 	$L__BB0_3;

$L__BB0_19:
	mov.u32 	%r191, 0;
	mov.u32 	%r192, %r1;
	mov.u32 	%r202, %r191;

$L__BB0_20:
	mad.lo.s32 	%r88, %r2, %r191, %r1;
	mul.wide.u32 	%rd155, %r88, 8;
	add.s64 	%rd156, %rd6, %rd155;
	max.u64 	%rd36, %rd156, -8;
	neg.s64 	%rd37, %rd36;
	cvt.u64.u32 	%rd38, %r192;
	add.s64 	%rd157, %rd5, %rd38;
	shl.b64 	%rd39, %rd157, 3;
	setp.ge.u64 	%p17, %rd39, %rd103;
	@%p17 bra 	$L__BB0_31;

	add.s64 	%rd158, %rd39, 8;
	setp.le.u64 	%p18, %rd158, %rd103;
	add.s64 	%rd159, %rd102, %rd39;
	and.b64  	%rd160, %rd159, 7;
	setp.eq.s64 	%p19, %rd160, 0;
	and.pred  	%p20, %p18, %p19;
	@%p20 bra 	$L__BB0_29;
	bra.uni 	$L__BB0_22;

$L__BB0_29:
	add.s64 	%rd191, %rd2, %rd39;
	ld.global.u64 	%rd316, [%rd191];
	bra.uni 	$L__BB0_30;

$L__BB0_22:
	and.b64  	%rd40, %rd37, 3;
	setp.gt.u64 	%p21, %rd36, -4;
	mov.u64 	%rd314, 0;
	mov.u64 	%rd313, %rd39;
	mov.u64 	%rd316, %rd314;
	@%p21 bra 	$L__BB0_25;

	sub.s64 	%rd311, %rd37, %rd40;
	mov.u64 	%rd314, 0;
	mov.u64 	%rd313, %rd39;

$L__BB0_24:
	add.s64 	%rd166, %rd2, %rd313;
	ld.global.u8 	%rd167, [%rd166];
	cvt.u32.u64 	%r89, %rd314;
	shl.b32 	%r90, %r89, 3;
	shl.b64 	%rd168, %rd167, %r90;
	or.b64  	%rd169, %rd168, %rd316;
	ld.global.u8 	%rd170, [%rd166+1];
	add.s64 	%rd171, %rd314, 1;
	cvt.u32.u64 	%r91, %rd171;
	shl.b32 	%r92, %r91, 3;
	shl.b64 	%rd172, %rd170, %r92;
	or.b64  	%rd173, %rd172, %rd169;
	ld.global.u8 	%rd174, [%rd166+2];
	add.s64 	%rd175, %rd314, 2;
	cvt.u32.u64 	%r93, %rd175;
	shl.b32 	%r94, %r93, 3;
	shl.b64 	%rd176, %rd174, %r94;
	or.b64  	%rd177, %rd176, %rd173;
	ld.global.u8 	%rd178, [%rd166+3];
	add.s64 	%rd179, %rd314, 3;
	cvt.u32.u64 	%r95, %rd179;
	shl.b32 	%r96, %r95, 3;
	shl.b64 	%rd180, %rd178, %r96;
	or.b64  	%rd316, %rd180, %rd177;
	add.s64 	%rd314, %rd314, 4;
	add.s64 	%rd313, %rd314, %rd39;
	add.s64 	%rd311, %rd311, -4;
	setp.ne.s64 	%p22, %rd311, 0;
	@%p22 bra 	$L__BB0_24;

$L__BB0_25:
	setp.eq.s64 	%p23, %rd40, 0;
	@%p23 bra 	$L__BB0_30;

	add.s64 	%rd181, %rd2, %rd313;
	ld.global.u8 	%rd182, [%rd181];
	cvt.u32.u64 	%r97, %rd314;
	shl.b32 	%r98, %r97, 3;
	shl.b64 	%rd183, %rd182, %r98;
	or.b64  	%rd316, %rd183, %rd316;
	setp.eq.s64 	%p24, %rd40, 1;
	@%p24 bra 	$L__BB0_30;

	add.s64 	%rd184, %rd314, 1;
	add.s64 	%rd185, %rd184, %rd39;
	add.s64 	%rd55, %rd2, %rd185;
	ld.global.u8 	%rd186, [%rd55];
	cvt.u32.u64 	%r99, %rd184;
	shl.b32 	%r100, %r99, 3;
	shl.b64 	%rd187, %rd186, %r100;
	or.b64  	%rd316, %rd187, %rd316;
	setp.eq.s64 	%p25, %rd40, 2;
	@%p25 bra 	$L__BB0_30;

	ld.global.u8 	%rd188, [%rd55+1];
	add.s64 	%rd189, %rd314, 2;
	cvt.u32.u64 	%r101, %rd189;
	shl.b32 	%r102, %r101, 3;
	shl.b64 	%rd190, %rd188, %r102;
	or.b64  	%rd316, %rd190, %rd316;

$L__BB0_30:
	shl.b64 	%rd192, %rd38, 3;
	add.s64 	%rd193, %rd1, %rd192;
	ld.global.u64 	%rd194, [%rd193];
	mul.lo.s64 	%rd195, %rd194, %rd316;
	add.s64 	%rd327, %rd195, %rd327;
	and.b64  	%rd196, %rd316, %rd106;
	setp.eq.s64 	%p26, %rd196, %rd106;
	selp.u32 	%r103, 1, 0, %p26;
	or.b32  	%r202, %r202, %r103;

$L__BB0_31:
	cvt.u32.u64 	%r104, %rd38;
	add.s32 	%r192, %r104, %r2;
	setp.lt.u32 	%p27, %r192, 4096;
	add.s32 	%r191, %r191, 1;
	@%p27 bra 	$L__BB0_20;
	bra.uni 	$L__BB0_50;

$L__BB0_32:
	shl.b64 	%rd197, %rd4, 15;
	sub.s64 	%rd62, %rd197, %rd103;
	add.s64 	%rd63, %rd2, %rd197;
	mov.u32 	%r195, 0;
	mov.u32 	%r196, %r1;
	mov.u32 	%r202, %r195;

$L__BB0_33:
	mad.lo.s32 	%r107, %r2, %r195, %r1;
	mul.wide.u32 	%rd198, %r107, 8;
	add.s64 	%rd199, %rd62, %rd198;
	max.u64 	%rd64, %rd199, -8;
	cvt.u64.u32 	%rd65, %r196;
	add.s64 	%rd200, %rd5, %rd65;
	shl.b64 	%rd66, %rd200, 3;
	setp.ge.u64 	%p28, %rd66, %rd103;
	@%p28 bra 	$L__BB0_49;

	add.s64 	%rd201, %rd66, 8;
	setp.le.u64 	%p29, %rd201, %rd103;
	add.s64 	%rd202, %rd102, %rd66;
	and.b64  	%rd203, %rd202, 7;
	setp.eq.s64 	%p30, %rd203, 0;
	and.pred  	%p31, %p29, %p30;
	@%p31 bra 	$L__BB0_42;
	bra.uni 	$L__BB0_35;

$L__BB0_42:
	add.s64 	%rd239, %rd2, %rd66;
	ld.global.u64 	%rd326, [%rd239];
	bra.uni 	$L__BB0_43;

$L__BB0_35:
	neg.s64 	%rd207, %rd64;
	mov.u64 	%rd324, 0;
	and.b64  	%rd67, %rd207, 3;
	setp.gt.u64 	%p32, %rd64, -4;
	mov.u64 	%rd323, %rd66;
	mov.u64 	%rd326, %rd324;
	@%p32 bra 	$L__BB0_38;

	add.s64 	%rd68, %rd64, %rd67;
	shl.b64 	%rd211, %rd65, 3;
	add.s64 	%rd69, %rd63, %rd211;
	mov.u64 	%rd318, 0;
	mov.u64 	%rd323, %rd66;
	mov.u64 	%rd324, %rd318;
	mov.u64 	%rd326, %rd318;

$L__BB0_37:
	add.s64 	%rd212, %rd2, %rd323;
	ld.global.u8 	%rd213, [%rd212];
	cvt.u32.u64 	%r108, %rd318;
	shl.b64 	%rd214, %rd213, %r108;
	or.b64  	%rd215, %rd214, %rd326;
	add.s64 	%rd216, %rd69, %rd324;
	ld.global.u8 	%rd217, [%rd216+1];
	add.s64 	%rd218, %rd318, 8;
	cvt.u32.u64 	%r109, %rd218;
	shl.b64 	%rd219, %rd217, %r109;
	or.b64  	%rd220, %rd219, %rd215;
	ld.global.u8 	%rd221, [%rd216+2];
	add.s64 	%rd222, %rd318, 16;
	cvt.u32.u64 	%r110, %rd222;
	shl.b64 	%rd223, %rd221, %r110;
	or.b64  	%rd224, %rd223, %rd220;
	ld.global.u8 	%rd225, [%rd216+3];
	add.s64 	%rd226, %rd318, 24;
	cvt.u32.u64 	%r111, %rd226;
	shl.b64 	%rd227, %rd225, %r111;
	or.b64  	%rd326, %rd227, %rd224;
	add.s64 	%rd324, %rd324, 4;
	add.s64 	%rd323, %rd324, %rd66;
	add.s64 	%rd318, %rd318, 32;
	add.s64 	%rd228, %rd68, %rd324;
	setp.ne.s64 	%p33, %rd228, 0;
	@%p33 bra 	$L__BB0_37;

$L__BB0_38:
	setp.eq.s64 	%p34, %rd67, 0;
	@%p34 bra 	$L__BB0_43;

	add.s64 	%rd229, %rd2, %rd323;
	ld.global.u8 	%rd230, [%rd229];
	cvt.u32.u64 	%r112, %rd324;
	shl.b32 	%r113, %r112, 3;
	shl.b64 	%rd231, %rd230, %r113;
	or.b64  	%rd326, %rd231, %rd326;
	setp.eq.s64 	%p35, %rd67, 1;
	@%p35 bra 	$L__BB0_43;

	add.s64 	%rd232, %rd324, 1;
	add.s64 	%rd233, %rd232, %rd66;
	add.s64 	%rd83, %rd2, %rd233;
	ld.global.u8 	%rd234, [%rd83];
	cvt.u32.u64 	%r114, %rd232;
	shl.b32 	%r115, %r114, 3;
	shl.b64 	%rd235, %rd234, %r115;
	or.b64  	%rd326, %rd235, %rd326;
	setp.eq.s64 	%p36, %rd67, 2;
	@%p36 bra 	$L__BB0_43;

	ld.global.u8 	%rd236, [%rd83+1];
	add.s64 	%rd237, %rd324, 2;
	cvt.u32.u64 	%r116, %rd237;
	shl.b32 	%r117, %r116, 3;
	shl.b64 	%rd238, %rd236, %r117;
	or.b64  	%rd326, %rd238, %rd326;

$L__BB0_43:
	mov.u32 	%r200, 0;
	setp.eq.s32 	%p37, %r61, 0;
	@%p37 bra 	$L__BB0_48;

	setp.ne.s32 	%p38, %r61, 64;
	@%p38 bra 	$L__BB0_46;

	and.b64  	%rd240, %rd326, %rd106;
	setp.eq.s64 	%p39, %rd240, %rd106;
	selp.u32 	%r200, 1, 0, %p39;
	bra.uni 	$L__BB0_48;

$L__BB0_46:
	mov.u32 	%r198, 0;
	mov.u32 	%r200, %r198;

$L__BB0_47:
	shr.u64 	%rd241, %rd326, %r198;
	and.b64  	%rd242, %rd241, %rd106;
	setp.eq.s64 	%p40, %rd242, %rd106;
	selp.u32 	%r121, 1, 0, %p40;
	or.b32  	%r200, %r200, %r121;
	add.s32 	%r198, %r198, %r61;
	setp.lt.u32 	%p41, %r198, 64;
	@%p41 bra 	$L__BB0_47;

$L__BB0_48:
	or.b32  	%r202, %r200, %r202;

$L__BB0_49:
	cvt.u32.u64 	%r122, %rd65;
	add.s32 	%r196, %r122, %r2;
	setp.lt.u32 	%p42, %r196, 4096;
	add.s32 	%r195, %r195, 1;
	@%p42 bra 	$L__BB0_33;
	bra.uni 	$L__BB0_50;

$L__BB0_3:
	mov.u32 	%r184, 0;
	mov.u32 	%r185, %r1;
	mov.u32 	%r202, %r184;

$L__BB0_4:
	mad.lo.s32 	%r66, %r2, %r184, %r1;
	mul.wide.u32 	%rd112, %r66, 8;
	add.s64 	%rd113, %rd6, %rd112;
	max.u64 	%rd8, %rd113, -8;
	neg.s64 	%rd9, %rd8;
	cvt.u64.u32 	%rd10, %r185;
	add.s64 	%rd114, %rd5, %rd10;
	shl.b64 	%rd11, %rd114, 3;
	setp.ge.u64 	%p4, %rd11, %rd103;
	@%p4 bra 	$L__BB0_18;

	add.s64 	%rd115, %rd11, 8;
	setp.le.u64 	%p5, %rd115, %rd103;
	add.s64 	%rd116, %rd102, %rd11;
	and.b64  	%rd117, %rd116, 7;
	setp.eq.s64 	%p6, %rd117, 0;
	and.pred  	%p7, %p5, %p6;
	@%p7 bra 	$L__BB0_13;
	bra.uni 	$L__BB0_6;

$L__BB0_13:
	add.s64 	%rd148, %rd2, %rd11;
	ld.global.u64 	%rd305, [%rd148];
	bra.uni 	$L__BB0_14;

$L__BB0_6:
	and.b64  	%rd12, %rd9, 3;
	setp.gt.u64 	%p8, %rd8, -4;
	mov.u64 	%rd303, 0;
	mov.u64 	%rd302, %rd11;
	mov.u64 	%rd305, %rd303;
	@%p8 bra 	$L__BB0_9;

	sub.s64 	%rd300, %rd9, %rd12;
	mov.u64 	%rd303, 0;
	mov.u64 	%rd302, %rd11;

$L__BB0_8:
	add.s64 	%rd123, %rd2, %rd302;
	ld.global.u8 	%rd124, [%rd123];
	cvt.u32.u64 	%r67, %rd303;
	shl.b32 	%r68, %r67, 3;
	shl.b64 	%rd125, %rd124, %r68;
	or.b64  	%rd126, %rd125, %rd305;
	ld.global.u8 	%rd127, [%rd123+1];
	add.s64 	%rd128, %rd303, 1;
	cvt.u32.u64 	%r69, %rd128;
	shl.b32 	%r70, %r69, 3;
	shl.b64 	%rd129, %rd127, %r70;
	or.b64  	%rd130, %rd129, %rd126;
	ld.global.u8 	%rd131, [%rd123+2];
	add.s64 	%rd132, %rd303, 2;
	cvt.u32.u64 	%r71, %rd132;
	shl.b32 	%r72, %r71, 3;
	shl.b64 	%rd133, %rd131, %r72;
	or.b64  	%rd134, %rd133, %rd130;
	ld.global.u8 	%rd135, [%rd123+3];
	add.s64 	%rd136, %rd303, 3;
	cvt.u32.u64 	%r73, %rd136;
	shl.b32 	%r74, %r73, 3;
	shl.b64 	%rd137, %rd135, %r74;
	or.b64  	%rd305, %rd137, %rd134;
	add.s64 	%rd303, %rd303, 4;
	add.s64 	%rd302, %rd303, %rd11;
	add.s64 	%rd300, %rd300, -4;
	setp.ne.s64 	%p9, %rd300, 0;
	@%p9 bra 	$L__BB0_8;

$L__BB0_9:
	setp.eq.s64 	%p10, %rd12, 0;
	@%p10 bra 	$L__BB0_14;

	add.s64 	%rd138, %rd2, %rd302;
	ld.global.u8 	%rd139, [%rd138];
	cvt.u32.u64 	%r75, %rd303;
	shl.b32 	%r76, %r75, 3;
	shl.b64 	%rd140, %rd139, %r76;
	or.b64  	%rd305, %rd140, %rd305;
	setp.eq.s64 	%p11, %rd12, 1;
	@%p11 bra 	$L__BB0_14;

	add.s64 	%rd141, %rd303, 1;
	add.s64 	%rd142, %rd141, %rd11;
	add.s64 	%rd27, %rd2, %rd142;
	ld.global.u8 	%rd143, [%rd27];
	cvt.u32.u64 	%r77, %rd141;
	shl.b32 	%r78, %r77, 3;
	shl.b64 	%rd144, %rd143, %r78;
	or.b64  	%rd305, %rd144, %rd305;
	setp.eq.s64 	%p12, %rd12, 2;
	@%p12 bra 	$L__BB0_14;

	ld.global.u8 	%rd145, [%rd27+1];
	add.s64 	%rd146, %rd303, 2;
	cvt.u32.u64 	%r79, %rd146;
	shl.b32 	%r80, %r79, 3;
	shl.b64 	%rd147, %rd145, %r80;
	or.b64  	%rd305, %rd147, %rd305;

$L__BB0_14:
	shl.b64 	%rd149, %rd10, 3;
	add.s64 	%rd150, %rd1, %rd149;
	ld.global.u64 	%rd32, [%rd150];
	setp.eq.s32 	%p13, %r61, 0;
	mov.u32 	%r189, 0;
	@%p13 bra 	$L__BB0_17;

	mov.u32 	%r187, 0;
	mov.u32 	%r189, %r187;

$L__BB0_16:
	shr.u64 	%rd151, %rd305, %r187;
	and.b64  	%rd152, %rd151, %rd106;
	setp.eq.s64 	%p14, %rd152, %rd106;
	selp.u32 	%r84, 1, 0, %p14;
	or.b32  	%r189, %r189, %r84;
	add.s32 	%r187, %r187, %r61;
	setp.lt.u32 	%p15, %r187, 64;
	@%p15 bra 	$L__BB0_16;

$L__BB0_17:
	or.b32  	%r202, %r189, %r202;
	mul.lo.s64 	%rd153, %rd32, %rd305;
	add.s64 	%rd327, %rd153, %rd327;

$L__BB0_18:
	cvt.u32.u64 	%r85, %rd10;
	add.s32 	%r185, %r85, %r2;
	setp.lt.u32 	%p16, %r185, 4096;
	add.s32 	%r184, %r184, 1;
	@%p16 bra 	$L__BB0_4;

$L__BB0_50:
	// begin inline asm
	mov.b64 {%r123,%r124}, %rd327;
	// end inline asm
	mov.u32 	%r143, 2;
	mov.u32 	%r144, 31;
	mov.u32 	%r145, 16;
	mov.u32 	%r146, -1;
	shfl.sync.down.b32 	%r126|%p43, %r124, %r145, %r144, %r146;
	shfl.sync.down.b32 	%r125|%p44, %r123, %r145, %r144, %r146;
	// begin inline asm
	mov.b64 %rd245, {%r125,%r126};
	// end inline asm
	add.s64 	%rd246, %rd245, %rd327;
	shfl.sync.down.b32 	%r147|%p45, %r202, %r145, %r144, %r146;
	or.b32  	%r148, %r147, %r202;
	// begin inline asm
	mov.b64 {%r127,%r128}, %rd246;
	// end inline asm
	mov.u32 	%r149, 8;
	shfl.sync.down.b32 	%r130|%p46, %r128, %r149, %r144, %r146;
	shfl.sync.down.b32 	%r129|%p47, %r127, %r149, %r144, %r146;
	// begin inline asm
	mov.b64 %rd247, {%r129,%r130};
	// end inline asm
	add.s64 	%rd248, %rd247, %rd246;
	shfl.sync.down.b32 	%r150|%p48, %r148, %r149, %r144, %r146;
	or.b32  	%r151, %r150, %r148;
	// begin inline asm
	mov.b64 {%r131,%r132}, %rd248;
	// end inline asm
	mov.u32 	%r152, 4;
	shfl.sync.down.b32 	%r134|%p49, %r132, %r152, %r144, %r146;
	shfl.sync.down.b32 	%r133|%p50, %r131, %r152, %r144, %r146;
	// begin inline asm
	mov.b64 %rd249, {%r133,%r134};
	// end inline asm
	add.s64 	%rd250, %rd249, %rd248;
	shfl.sync.down.b32 	%r153|%p51, %r151, %r152, %r144, %r146;
	or.b32  	%r154, %r153, %r151;
	// begin inline asm
	mov.b64 {%r135,%r136}, %rd250;
	// end inline asm
	shfl.sync.down.b32 	%r138|%p52, %r136, %r143, %r144, %r146;
	shfl.sync.down.b32 	%r137|%p53, %r135, %r143, %r144, %r146;
	// begin inline asm
	mov.b64 %rd251, {%r137,%r138};
	// end inline asm
	add.s64 	%rd252, %rd251, %rd250;
	shfl.sync.down.b32 	%r155|%p54, %r154, %r143, %r144, %r146;
	or.b32  	%r156, %r155, %r154;
	// begin inline asm
	mov.b64 {%r139,%r140}, %rd252;
	// end inline asm
	mov.u32 	%r157, 1;
	shfl.sync.down.b32 	%r142|%p55, %r140, %r157, %r144, %r146;
	shfl.sync.down.b32 	%r141|%p56, %r139, %r157, %r144, %r146;
	// begin inline asm
	mov.b64 %rd253, {%r141,%r142};
	// end inline asm
	add.s64 	%rd332, %rd253, %rd252;
	shfl.sync.down.b32 	%r158|%p57, %r156, %r157, %r144, %r146;
	or.b32  	%r212, %r158, %r156;
	and.b32  	%r159, %r1, 31;
	setp.ne.s32 	%p58, %r159, 0;
	@%p58 bra 	$L__BB0_52;

	shr.u32 	%r160, %r1, 5;
	mul.wide.u32 	%rd254, %r160, 8;
	mov.u64 	%rd255, _ZZ13prismdbg_scanE4sums;
	add.s64 	%rd256, %rd255, %rd254;
	st.shared.u64 	[%rd256], %rd332;
	mul.wide.u32 	%rd257, %r160, 4;
	mov.u64 	%rd258, _ZZ13prismdbg_scanE5found;
	add.s64 	%rd259, %rd258, %rd257;
	st.shared.u32 	[%rd259], %r212;

$L__BB0_52:
	bar.sync 	0;
	setp.ne.s32 	%p59, %r1, 0;
	@%p59 bra 	$L__BB0_67;

	mov.u32 	%r37, %ntid.x;
	setp.lt.u32 	%p60, %r37, 64;
	@%p60 bra 	$L__BB0_60;

	shr.u32 	%r163, %r37, 5;
	max.u32 	%r164, %r163, 2;
	add.s32 	%r38, %r164, -1;
	add.s32 	%r165, %r164, -2;
	and.b32  	%r211, %r38, 3;
	setp.lt.u32 	%p61, %r165, 3;
	mov.u32 	%r207, 1;
	@%p61 bra 	$L__BB0_57;

	sub.s32 	%r205, %r38, %r211;
	mov.u32 	%r207, 1;
	mov.u64 	%rd262, _ZZ13prismdbg_scanE4sums;
	mov.u64 	%rd267, _ZZ13prismdbg_scanE5found;

$L__BB0_56:
	mul.wide.u32 	%rd261, %r207, 8;
	add.s64 	%rd263, %rd262, %rd261;
	ld.shared.u64 	%rd264, [%rd263];
	add.s64 	%rd265, %rd264, %rd332;
	mul.wide.u32 	%rd266, %r207, 4;
	add.s64 	%rd268, %rd267, %rd266;
	ld.shared.u32 	%r167, [%rd268];
	or.b32  	%r168, %r167, %r212;
	ld.shared.u64 	%rd269, [%rd263+8];
	add.s64 	%rd270, %rd269, %rd265;
	ld.shared.u32 	%r169, [%rd268+4];
	or.b32  	%r170, %r169, %r168;
	ld.shared.u64 	%rd271, [%rd263+16];
	add.s64 	%rd272, %rd271, %rd270;
	ld.shared.u32 	%r171, [%rd268+8];
	or.b32  	%r172, %r171, %r170;
	add.s32 	%r173, %r207, 3;
	mul.wide.u32 	%rd273, %r173, 8;
	add.s64 	%rd274, %rd262, %rd273;
	ld.shared.u64 	%rd275, [%rd274];
	add.s64 	%rd332, %rd275, %rd272;
	mul.wide.u32 	%rd276, %r173, 4;
	add.s64 	%rd277, %rd267, %rd276;
	ld.shared.u32 	%r174, [%rd277];
	or.b32  	%r212, %r174, %r172;
	add.s32 	%r207, %r207, 4;
	add.s32 	%r205, %r205, -4;
	setp.ne.s32 	%p62, %r205, 0;
	@%p62 bra 	$L__BB0_56;

$L__BB0_57:
	setp.eq.s32 	%p63, %r211, 0;
	@%p63 bra 	$L__BB0_60;

	mov.u64 	%rd279, _ZZ13prismdbg_scanE4sums;
	mov.u64 	%rd283, _ZZ13prismdbg_scanE5found;

$L__BB0_59:
	.pragma "nounroll";
	mul.wide.u32 	%rd278, %r207, 8;
	add.s64 	%rd280, %rd279, %rd278;
	ld.shared.u64 	%rd281, [%rd280];
	add.s64 	%rd332, %rd281, %rd332;
	mul.wide.u32 	%rd282, %r207, 4;
	add.s64 	%rd284, %rd283, %rd282;
	ld.shared.u32 	%r175, [%rd284];
	or.b32  	%r212, %r175, %r212;
	add.s32 	%r207, %r207, 1;
	add.s32 	%r211, %r211, -1;
	setp.ne.s32 	%p64, %r211, 0;
	@%p64 bra 	$L__BB0_59;

$L__BB0_60:
	cvt.u32.u64 	%r176, %rd4;
	not.b32 	%r177, %r176;
	mov.u32 	%r57, %nctaid.x;
	add.s32 	%r213, %r57, %r177;
	setp.eq.s32 	%p65, %r213, 0;
	mov.u64 	%rd335, 1;
	@%p65 bra 	$L__BB0_63;

	mov.u64 	%rd335, 1;

$L__BB0_62:
	and.b32  	%r178, %r213, 1;
	setp.eq.b32 	%p66, %r178, 1;
	selp.b64 	%rd287, %rd333, 1, %p66;
	mul.lo.s64 	%rd335, %rd287, %rd335;
	mul.lo.s64 	%rd333, %rd333, %rd333;
	shr.u32 	%r213, %r213, 1;
	setp.ne.s32 	%p67, %r213, 0;
	@%p67 bra 	$L__BB0_62;

$L__BB0_63:
	mul.lo.s64 	%rd288, %rd335, %rd332;
	atom.global.add.u64 	%rd289, [%rd3], %rd288;
	setp.eq.s32 	%p68, %r212, 0;
	@%p68 bra 	$L__BB0_65;

	add.s64 	%rd290, %rd3, 8;
	atom.global.or.b32 	%r179, [%rd290], 1;

$L__BB0_65:
	membar.gl;
	add.s64 	%rd291, %rd3, 12;
	atom.global.add.u32 	%r180, [%rd291], 1;
	add.s32 	%r181, %r57, -1;
	setp.ne.s32 	%p69, %r180, %r181;
	@%p69 bra 	$L__BB0_67;

	membar.gl;
	atom.global.exch.b64 	%rd292, [%rd3], 0;
	cvta.to.global.u64 	%rd293, %rd107;
	st.global.u64 	[%rd293], %rd292;
	add.s64 	%rd294, %rd3, 8;
	atom.global.exch.b32 	%r182, [%rd294], 0;
	st.global.u32 	[%rd293+8], %r182;
	atom.global.exch.b32 	%r183, [%rd291], 0;
	membar.sys;

$L__BB0_67:
	ret;

}
)ptx";

}  // namespace prismdbg
