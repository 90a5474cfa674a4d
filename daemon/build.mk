# The host daemon ibvmigd and its command line ibvmig.
DAEMON_DIRS := . base store libvirt vf vm migrate fleet report
DAEMON_SRC  := $(filter-out daemon/main.c,$(patsubst daemon/./%,daemon/%,$(sort $(wildcard $(DAEMON_DIRS:%=daemon/%/*.c)))))
DAEMON_LIB   := $(BUILD)/lib/libdaemon.a
DAEMON_LIBS  := $(DAEMON_LIB) $(NET_LIBS) -lsqlite3 -lxml2 -lvirt-qemu -lvirt -lnl-3

$(eval $(call archive,libdaemon,$(DAEMON_SRC),-I/usr/include/libxml2 -I/usr/include/libnl3))
$(eval $(call program,ibvmigd,daemon/main.c,$(DAEMON_LIBS),-I/usr/include/libxml2))
$(eval $(call program,ibvmig-lease,daemon/lease/main.c,$(DAEMON_LIBS)))
$(eval $(call program,ibvmig,$(sort $(wildcard daemon/cli/*.c)),$(NET_LIBS) -lm))

$(eval $(call testtool,hw_provider,tests/hw/provider.c tests/hw/checks.c,$(DAEMON_LIBS)))
$(BUILD)/obj/daemon/report/openapi.o: docs/openapi.json
FLOOD_SRC := $(addprefix daemon/,base/partition.c $(addprefix vm/,agent.c answers.c channel.c relay.c relay_host.c \
	relay_pkeys.c relay_route.c))
$(eval $(call testtool,flood_host,tests/bench/flood_host.c $(FLOOD_SRC),$(NET_LIBS) -Wl$(comma)--wrap=vm_channel_relay_failed))
