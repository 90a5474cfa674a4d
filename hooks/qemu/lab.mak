# SPDX-License-Identifier: GPL-2.0-or-later
# The devices of QEMU that the lab's guests have (tests/lab/iblab/vm.py), and vfio-pci, so that the
# patch of it is compiled.
CONFIG_Q35=y
CONFIG_PCIE_PORT=y
CONFIG_VIRTIO_PCI=y
CONFIG_VIRTIO_NET=y
CONFIG_VIRTIO_RNG=y
CONFIG_VIRTIO_SERIAL=y
CONFIG_VFIO_PCI=y
