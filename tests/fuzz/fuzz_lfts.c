/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A dump of LFTs with any content, for a fabric of two switches (GUIDs 0x200000 and 0x200001, LIDs
 * 1 and 2) and two CA ports (LIDs 3 and 70). The dump is refused with a reason and no LFT kept, or
 * it is read, written and read again the same. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "vswitch/text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char topology[] =
	"Switch 3 \"a\" # \"a\" base port 0 lid 1 lmc 0\n[1] \"x\"[1]\n[3] \"b\"[3]\n\n"
	"Switch 3 \"b\" # \"b\" base port 0 lid 2 lmc 0\n[1] \"y\"[1]\n[3] \"a\"[3]\n\n"
	"Ca 1 \"x\"\n[1] \"a\"[1] # lid 3\n\nCa 1 \"y\"\n[1] \"b\"[1] # lid 70\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fabric_error e = {""};
	struct fabric f, again;
	size_t bytes;
	char *text;

	if (topo_read(topology, strlen(topology), &f, NULL, &e) ||
	    topo_read(topology, strlen(topology), &again, NULL, &e))
		abort();
	if (lfts_read((const char *)data, size, &f, NULL, &e)) {
		if (!e.text[0] || fabric_lft_block(&f, 0, 0) || fabric_lft_block(&f, 1, 0))
			abort();
	} else {
		text = lfts_format(&f, &bytes);
		if (!text || lfts_read(text, bytes, &again, NULL, &e))
			abort();
		for (uint32_t s = 0; s < 2; s++)
			for (unsigned lid = 1; lid <= 70; lid++)
				if (lid / 64 < f.sw[s].lft_blocks &&
				    fabric_lft_entry(&f, s, (uint16_t)lid) !=
					    fabric_lft_entry(&again, s, (uint16_t)lid))
					abort();
		free(text);
	}
	fabric_clear(&again);
	fabric_clear(&f);
	return 0;
}
