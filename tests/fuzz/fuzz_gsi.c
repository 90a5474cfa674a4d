/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whatever a guest of the lab sends to its port's agent: readers keep their bounds. What goes on to
 * the subnet manager is a MAD of the SA from the port itself. */
#include <stdlib.h>
#include <string.h>

#include "tests/lab/port/bridge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct port port = {.state = 4, .lid = 6, .sm_lid = 1, .pkey = {0xffff}};
	struct bridge b = {0};
	uint8_t told[WIRE_CONTROL_BYTES];
	struct wire_gsi gsi;
	struct sa_mad mad;
	uint64_t guid;
	bool same;

	wire_tell(&port, told);
	wire_asks(data, size, &guid);
	wire_has(data, size, told, &same);
	if (!wire_gsi_read(data, size, &gsi) && !bridge_up(&b, &port, &gsi, &mad) &&
	    (mad.lid != 1 || mad.qp != WIRE_QP1 || mad.mad[1] != 3))
		abort();
	return 0;
}
