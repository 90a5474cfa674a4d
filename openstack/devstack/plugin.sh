#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# devstack sources this as "plugin.sh MODE PHASE": the driver beside Nova's own, and nova-compute's configuration.
# ibvmigd itself is the host's (docs/hosts.md).

ibvmig_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

function install_nova_ibvmig {
	pip_install -e "$ibvmig_dir"
	ln -sfn "$ibvmig_dir/nova/virt/ibvmig" "$NOVA_DIR/nova/virt/ibvmig"
}

function configure_nova_ibvmig {
	iniset "$NOVA_CPU_CONF" DEFAULT compute_driver ibvmig.IbvmigLibvirtDriver
	iniset "$NOVA_CPU_CONF" ibvmig endpoint "$IBVMIG_ENDPOINT"
	iniset "$NOVA_CPU_CONF" ibvmig pf_by_physnet "$IBVMIG_PF_BY_PHYSNET"
	iniset "$NOVA_CPU_CONF" ibvmig cafile "$IBVMIG_CAFILE"
	iniset "$NOVA_CPU_CONF" ibvmig certfile "$IBVMIG_CERTFILE"
	iniset "$NOVA_CPU_CONF" ibvmig keyfile "$IBVMIG_KEYFILE"
}

if is_service_enabled n-cpu; then
	case $1/${2:-} in
	stack/install) install_nova_ibvmig ;;
	stack/post-config) configure_nova_ibvmig ;;
	clean/) rm -f "$NOVA_DIR/nova/virt/ibvmig" ;;
	esac
fi
