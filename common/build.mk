# libcommon: small, for every program and for the guest. libnet: HTTP, event loop, workers; for daemons only.
COMMON_SRC := common/log.c common/util.c common/ib.c common/json.c common/frame.c common/command.c common/nearest.c common/utf8.c common/fair.c
NET_SRC    := $(sort $(filter-out $(COMMON_SRC),$(wildcard common/*.c common/tls/*.c common/http/*.c)))
$(eval $(call archive,libcommon,$(COMMON_SRC)))
$(eval $(call archive,libnet,$(NET_SRC)))
COMMON := $(BUILD)/lib/libcommon.a
NET    := $(BUILD)/lib/libnet.a
# link lines: $(COMMON_LIBS) or $(NET_LIBS), in this order after the objects
COMMON_LIBS := $(COMMON) -ljson-c
NET_LIBS    := $(NET) $(COMMON) -lmicrohttpd -lcurl-gnutls -lgnutls -lsystemd -ljson-c -lpthread
