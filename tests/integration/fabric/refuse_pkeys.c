/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Preloaded in OpenSM: ports refuse P_Key tables that are to be written. Each such SMP takes a byte
 * from the file $REFUSE_PKEYS, and "x" has it refused. The block that is then asked for is one that
 * no port has, so the port answers with an error. */
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/umad.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLASS_DIRECTED 0x81
#define METHOD_SET     2
#define ATTR_PKEYS     0x16
#define NO_SUCH_BLOCK  0x7f

static int is_refused(void)
{
	const char *path = getenv("REFUSE_PKEYS");
	char plan[4096];
	int fd = path ? open(path, O_RDWR) : -1, refused;
	ssize_t n = fd < 0 ? 0 : read(fd, plan, sizeof plan);

	refused = n > 0 && plan[0] == 'x' && pwrite(fd, plan + 1, (size_t)n - 1, 0) == n - 1;
	if (n > 0 && !refused)
		n = pwrite(fd, plan + 1, (size_t)n - 1, 0) + 1;
	if (n > 0 && ftruncate(fd, n - 1))
		refused = 0;
	if (fd >= 0)
		close(fd);
	return refused;
}

int umad_send(int port, int agent, void *umad, int length, int timeout_ms, int retries)
{
	int (*real)(int, int, void *, int, int, int);
	void *next = dlsym(RTLD_NEXT, "umad_send");
	uint8_t *mad = umad_get_mad(umad);

	if (mad[1] == CLASS_DIRECTED && mad[3] == METHOD_SET && mad[17] == ATTR_PKEYS &&
	    is_refused())
		mad[23] = NO_SUCH_BLOCK;
	memcpy(&real, &next, sizeof real);
	return real(port, agent, umad, length, timeout_ms, retries);
}
