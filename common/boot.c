/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "common/boot.h"

#include <systemd/sd-id128.h>

void boot_id(char text[static 33])
{
	sd_id128_t id;

	text[0] = '\0';
	if (!sd_id128_get_boot(&id))
		sd_id128_to_string(id, text);
}
