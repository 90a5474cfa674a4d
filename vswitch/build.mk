# libvswitch: model of a fabric and its LFTs, plans, walks. Pure, no I/O.
VSWITCH_DIRS := model text nets routing moves cost
VSWITCH_SRC  := $(sort $(wildcard $(VSWITCH_DIRS:%=vswitch/%/*.c)))
$(eval $(call archive,libvswitch,$(VSWITCH_SRC)))
VSWITCH := $(BUILD)/lib/libvswitch.a
$(eval $(call testprogram,test_vswitch_tables,tests/unit/test_vswitch_tables.c,$(VSWITCH) $(COMMON)))
$(eval $(call testprogram,test_vswitch_walk,tests/unit/test_vswitch_walk.c,$(VSWITCH)))
$(eval $(call testprogram,test_vswitch_gen,tests/unit/test_vswitch_gen.c,$(VSWITCH) $(COMMON)))
$(eval $(call testprogram,test_vswitch_lids,tests/unit/test_vswitch_lids.c,$(VSWITCH) $(COMMON)))
$(eval $(call testprogram,test_vswitch_moves,tests/unit/test_vswitch_moves.c,$(VSWITCH) $(COMMON)))
$(eval $(call testprogram,test_vswitch_text,tests/unit/test_vswitch_text.c,$(VSWITCH) $(COMMON)))
$(eval $(call testprogram,test_fuzz_topo,tests/fuzz/replay.c tests/fuzz/fuzz_topo.c,$(VSWITCH) $(COMMON)))
$(eval $(call testprogram,test_fuzz_lfts,tests/fuzz/replay.c tests/fuzz/fuzz_lfts.c,$(VSWITCH) $(COMMON)))
VSWITCH_CMD := $(sort $(wildcard vswitch/cmd/*.c))
$(eval $(call program,ibvmig-vswitch,$(VSWITCH_CMD),$(VSWITCH) $(COMMON)))
$(eval $(call testprogram,test_vswitch_rank,tests/unit/test_vswitch_rank.c,$(VSWITCH) $(COMMON)))
$(eval $(call testtool,vswitch_bench,tests/bench/vswitch_bench.c,$(VSWITCH) $(COMMON)))
