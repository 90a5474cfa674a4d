/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whatever a topology file holds: refused with a reason, or a fabric that is written and read again
 * as the same one. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vswitch/text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fabric_error e = {""};
	struct fabric f, again;
	size_t bytes;
	char *text;

	if (topo_read((const char *)data, size, &f, NULL, &e)) {
		if (!e.text[0])
			abort();
		return 0;
	}
	text = topo_format(&f, &bytes);
	if (!text || topo_read(text, bytes, &again, NULL, &e))
		abort();
	if (f.switches != again.switches || f.ends != again.ends ||
	    fabric_top_lid(&f) != fabric_top_lid(&again))
		abort();
	free(text);
	fabric_clear(&again);
	fabric_clear(&f);
	return 0;
}
