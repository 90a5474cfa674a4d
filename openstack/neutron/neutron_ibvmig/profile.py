# SPDX-License-Identifier: GPL-2.0-or-later
"""What a port's binding:profile may say of its VF, and the PKey of a network."""
import re

FULL_MEMBER = 0x8000


def pkey_of_vlan(vlan):
    """The PKey, of a full member, whose 15 bits are the VLAN id: "0x" and 4 hex digits."""
    return '0x%04x' % (FULL_MEMBER | vlan)


def problem(profile, vlan):
    """Why a port with that binding:profile cannot be bound to a network of that VLAN id (None: of type flat), as a
    sentence; None where it can.

    Nova's driver reads the same two keys (nova_ibvmig.vif), on a host where nobody asks it before a server starts."""
    vguid, pkey = profile.get('vguid'), profile.get('pkey')
    if vguid is not None and not _is_number(vguid, digits=16):
        return 'vguid %s in binding:profile must be 0x and 16 hex digits, not all zero' % (vguid,)
    if pkey is None:
        return None
    if not _is_number(pkey, digits=4) or not int(pkey, 16) & ~FULL_MEMBER:
        return 'pkey %s in binding:profile must be 0x and 4 hex digits, and not 0x0000 or 0x8000' % (pkey,)
    if vlan is not None and int(pkey, 16) & ~FULL_MEMBER != vlan:
        return ('pkey %s in binding:profile is not that of the network, whose VLAN id %d means %s: leave it out, or '
                'choose another network' % (pkey, vlan, pkey_of_vlan(vlan)))
    return None


def _is_number(given, digits):
    return isinstance(given, str) and re.fullmatch('0x[0-9a-fA-F]{%d}' % digits, given) and int(given, 16)
