#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
# devstack sources this as "plugin.sh MODE PHASE": the driver beside Nova's own, and nova-compute's configuration; on
# neutron-server's host the mechanism driver, and ML2's. ibvmigd itself is the host's (docs/hosts.md).

ibvmig_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

function install_nova_ibvmig {
	pip_install -e "$ibvmig_dir"
	ln -sfn "$ibvmig_dir/nova/virt/ibvmig" "$NOVA_DIR/nova/virt/ibvmig"
}

# Not NOVA_CPU_CONF: devstack makes that file of this one when it starts nova-compute.
function configure_nova_ibvmig {
	iniset "$NOVA_CONF" DEFAULT compute_driver ibvmig.IbvmigLibvirtDriver
	iniset "$NOVA_CONF" ibvmig endpoint "$IBVMIG_ENDPOINT"
	iniset "$NOVA_CONF" ibvmig pf_by_physnet "$IBVMIG_PF_BY_PHYSNET"
	iniset "$NOVA_CONF" ibvmig cafile "$IBVMIG_CAFILE"
	iniset "$NOVA_CONF" ibvmig certfile "$IBVMIG_CERTFILE"
	iniset "$NOVA_CONF" ibvmig keyfile "$IBVMIG_KEYFILE"
}

if is_service_enabled n-cpu; then
	case $1/${2:-} in
	stack/install) install_nova_ibvmig ;;
	stack/post-config) configure_nova_ibvmig ;;
	clean/) rm -f "$NOVA_DIR/nova/virt/ibvmig" ;;
	esac
fi

# Before the others: those that bind vnic_type=direct too would take the port first.
function configure_neutron_ibvmig {
	local conf=/$Q_PLUGIN_CONF_FILE

	iniset "$conf" ml2 mechanism_drivers "ibvmig,$(iniget "$conf" ml2 mechanism_drivers)"
	iniset "$conf" ml2_ibvmig physical_networks "$IBVMIG_PHYSICAL_NETWORKS"
}

if is_service_enabled q-svc neutron-api; then
	case $1/${2:-} in
	stack/install) pip_install -e "$ibvmig_dir/neutron" ;;
	stack/post-config) configure_neutron_ibvmig ;;
	esac
fi
