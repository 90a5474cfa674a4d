# libvirt's hook: hooks/install puts it into /etc/libvirt/hooks/qemu.d.
$(eval $(call program,ibvmig-hook,hooks/ibvmig_hook.c,$(NET) $(COMMON) -lcurl-gnutls -lgnutls -lsystemd -ljson-c -lpthread))
