/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "sm-helper/fabric/pkeys.h"

bool pkeys_meet(const struct pkeys *a, const struct pkeys *b)
{
	for (unsigned i = 0; i < a->count; i++)
		for (unsigned k = 0; k < b->count; k++)
			if (!((a->key[i] ^ b->key[k]) & PKEY_BASE) &&
			    (a->key[i] | b->key[k]) & PKEY_FULL)
				return true;
	return false;
}
