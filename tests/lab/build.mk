# Programs of the lab: in the guests, and beside the simulated fabric.
$(eval $(call testtool,guest_nicd,tests/lab/guest/nicd.c tests/lab/netlink.c,$(COMMON_LIBS)))
$(eval $(call testtool,guest_execd,tests/lab/guest/execd.c,$(COMMON_LIBS)))
$(eval $(call testtool,lab_provider,tests/lab/provider.c tests/lab/tap.c tests/lab/console.c tests/lab/netlink.c,$(COMMON_LIBS)))
$(eval $(call testtool,rxe_tell,tests/lab/rxe/tell.c,$(COMMON_LIBS)))
$(eval $(call testtool,rxe_apm,tests/lab/rxe/apm.c,$(COMMON_LIBS) -libverbs))
DATAPATH_SRC := tests/lab/datapath/main.c tests/lab/datapath/fabric.c tests/lab/datapath/fdb.c \
                tests/lab/datapath/enforce.c tests/lab/datapath/registry.c tests/lab/netlink.c
$(eval $(call testtool,lab_datapath,$(DATAPATH_SRC),$(NET_LIBS) -libmad -libumad))
PORT_SRC := $(addprefix tests/lab/port/,main.c port.c wire.c nic.c sa.c bridge.c) tests/lab/netlink.c
$(eval $(call testtool,lab_port,$(PORT_SRC),$(COMMON_LIBS) -libmad -libumad -lpthread))
$(eval $(call shared,umad_timeouts,tests/lab/umad_timeouts.c,-libmad -libumad -lpthread))
$(eval $(call shared,umad_guids,tests/lab/umad_guids.c,-libmad -libumad -lpthread))
