# Tests of common/, and what the lab builds. Each other folder's build.mk declares the tests of its own code.
$(eval $(call testprogram,test_common_frame,tests/unit/test_common_frame.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_common_ib,tests/unit/test_common_ib.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_common_json,tests/unit/test_common_json.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_common_log,tests/unit/test_common_log.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_fuzz_frame,tests/fuzz/replay.c tests/fuzz/fuzz_frame.c,$(COMMON_LIBS)))
$(eval $(call testprogram,test_common_http,tests/unit/test_common_http.c,$(NET_LIBS) -Wl$(comma)--wrap=realloc))
$(eval $(call testprogram,test_common_work,tests/unit/test_common_work.c,$(NET_LIBS) -Wl$(comma)--wrap=pthread_create))
$(eval $(call testprogram,test_common_tls,tests/unit/test_common_tls.c tests/fake/certs.c,$(NET_LIBS)))
$(eval $(call testprogram,test_fuzz_http,tests/fuzz/replay.c tests/fuzz/fuzz_http.c,$(NET_LIBS)))

-include tests/lab/build.mk tests/guest/build.mk tests/fake/build.mk
