# libibvmigsm.so: OpenSM's event plugin. OpenSM's symbols come from the program that loads it.
OSM_CFLAGS := -isystem /usr/include/infiniband
SM_PLUGIN_SRC := $(sort $(wildcard sm-helper/plugin/*.c sm-helper/plugin/*/*.c)) sm-helper/proto/check.c
# nodelete: OpenSM closes a plugin that has not come up, and our handlers may be among its own by then.
$(eval $(call shared,libibvmigsm,$(SM_PLUGIN_SRC),$(VSWITCH) $(COMMON) -lpthread,$(OSM_CFLAGS),-Wl$(comma)-z$(comma)nodelete))

# ibvmig-sm: registry, REST, verification.
SM_DIRS := registry fabric backend paths twin moves notify watch rest
SM_SRC  := sm-helper/main.c sm-helper/cli.c sm-helper/settings.c $(sort $(wildcard $(SM_DIRS:%=sm-helper/%/*.c)))
$(eval $(call program,ibvmig-sm,$(SM_SRC),$(VSWITCH) $(NET_LIBS) -lsqlite3 -libmad -libumad))
$(eval $(call testtool,fabric_setlft,tests/integration/fabric/setlft.c,-libmad -libumad))
$(eval $(call testtool,fabric_sa,tests/integration/fabric/sa.c,-libmad -libumad))
$(eval $(call shared,no_plugin_thread,tests/integration/fabric/no_plugin_thread.c,-ldl))
$(eval $(call shared,no_lid_smps,tests/integration/fabric/no_lid_smps.c,-ldl))
$(eval $(call shared,refuse_pkeys,tests/integration/fabric/refuse_pkeys.c,-ldl))
$(eval $(call testtool,fabric_ping,tests/integration/fabric/ping.c,-libmad -libumad))
$(eval $(call testtool,umad_lfts,tests/bench/umad_lfts.c,$(COMMON) -libumad))
$(eval $(call testtool,umad_pkeys,tests/bench/umad_pkeys.c,-libmad -libumad))
$(eval $(call testtool,sa_flood,tests/bench/sa_flood.c sm-helper/paths/wire.c,$(COMMON) -libumad -lm))
