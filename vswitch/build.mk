# libvswitch: model of a fabric and its LFTs, plans, walks. Pure, no I/O.
VSWITCH_DIRS := model text nets routing moves cost
VSWITCH_SRC  := $(sort $(wildcard $(VSWITCH_DIRS:%=vswitch/%/*.c)))
$(eval $(call archive,libvswitch,$(VSWITCH_SRC)))
VSWITCH := $(BUILD)/lib/libvswitch.a
VSWITCH_CMD := $(sort $(wildcard vswitch/cmd/*.c))
$(eval $(call program,ibvmig-vswitch,$(VSWITCH_CMD),$(VSWITCH) $(COMMON)))
$(eval $(call testtool,vswitch_bench,tests/bench/vswitch_bench.c,$(VSWITCH) $(COMMON)))
