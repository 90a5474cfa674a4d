/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The agent of one VF's port: lab_port --netns FILE --tap NAME [--entry N], with the VF's node in
 * $SIM_HOST. With --entry the VF is that entry of the node's GUID table.
 *
 * The HCA of a VF is a port of the simulated fabric, and its guest's device is behind a tap. The
 * agent tells the device what the subnet manager has made of the port, and passes MADs of the
 * subnet administrator both ways. Without the tap it does nothing. IBVMIG_FAULT=no-lid keeps the
 * first LID that the device was told. */
#include "common/log.h"
#include "common/util.h"
#include "tests/lab/port/bridge.h"
#include "tests/lab/port/nic.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/timerfd.h>

#define READ_MS 25  /* between two looks at the port */
#define TELL_MS 250 /* after that the device is told again, if it has not said that it has it */

struct agent {
	struct ibmad_port *mad;
	struct sa sa;
	struct nic nic;
	struct bridge bridge;
	struct port port;                  /* as the last look found it; all 0: not looked yet */
	uint8_t frame[WIRE_CONTROL_BYTES]; /* that for the device */
	bool untold;                       /* the device has not said that it has it */
	uint64_t tell_at;                  /* it is told then, on now_ms() */
	unsigned entry;                    /* of the GUID table; 0: the port is the VF's own */
	bool fault_no_lid;
	uint16_t first_lid; /* since the tap is there; 0: none yet */
	int timer;          /* runs while the tap is there */
	int read_error;     /* of the last look */
	uint64_t refused;   /* frames of the guest that went nowhere */
};

/* A test's fault: the device is never told of another LID than the first one. */
static void keep_lid(struct agent *a)
{
	if (!a->fault_no_lid)
		return;
	if (!a->first_lid)
		a->first_lid = a->port.lid;
	a->port.lid = a->first_lid;
}

/* Reads the port, and notes where the device is to be told of it. */
static void look(struct agent *a)
{
	uint8_t frame[WIRE_CONTROL_BYTES];
	char text[PORT_TEXT];
	bool reregister = a->port.reregister; /* given once, and not told yet */
	int r = port_read(a->mad, &a->port);

	if (r && !a->read_error)
		log_error("%s: the port does not answer: %s; trying on", a->nic.name, strerror(-r));
	a->read_error = r;
	if (r)
		return;
	a->port.reregister |= reregister;
	if (a->entry)
		port_share(&a->port, a->entry);
	keep_lid(a);
	wire_tell(&a->port, frame);
	if (!memcmp(frame, a->frame, sizeof(frame)))
		return;
	memcpy(a->frame, frame, sizeof(frame));
	a->untold = true;
	a->tell_at = 0;
	port_text(&a->port, text);
	log_info("%s: %s", a->nic.name, text);
}

/* A link that is down takes no frame, so the next look tries again. A frame may be lost as well, or
 * come before the device. */
static void look_and_tell(struct agent *a)
{
	look(a);
	if (a->untold && now_ms() >= a->tell_at && !nic_send(&a->nic, a->frame, sizeof(a->frame)))
		a->tell_at = now_ms() + TELL_MS;
}

static void device_has_it(struct agent *a)
{
	a->untold = false;
	a->port.reregister = false; /* an event, told once */
	wire_tell(&a->port, a->frame);
}

static void set_timer(struct agent *a, bool runs)
{
	const struct timespec each = {0, runs ? READ_MS * 1000000 : 0};
	const struct itimerspec t = {each, each};

	timerfd_settime(a->timer, 0, &t, NULL);
}

static void on_links(struct agent *a)
{
	if (!nic_changed(&a->nic))
		return;
	log_info("%s: %s", a->nic.name, a->nic.ifindex ? "is there" : "is gone");
	a->port = (struct port){0};
	memset(a->frame, 0, sizeof(a->frame));
	a->untold = false;
	a->first_lid = 0;
	set_timer(a, a->nic.ifindex);
	if (a->nic.ifindex)
		look_and_tell(a);
}

static void refuse(struct agent *a, const char *why)
{
	a->refused++;
	/* A guest may send as many as it likes: the log has the first, then each that doubles them.
	 */
	if (!(a->refused & (a->refused - 1)))
		log_warn("%s: %llu frames of the guest refused; the last one: %s", a->nic.name,
			 (unsigned long long)a->refused, why);
}

static void on_gsi(struct agent *a, const struct wire_gsi *gsi)
{
	struct sa_mad mad;
	int r = bridge_up(&a->bridge, &a->port, gsi, &mad);

	if (r == -EALREADY || r == -ENOMSG)
		return;
	if (r) {
		refuse(a, r == -EPERM ? "LIDs, P_Key or Q_Key are not the port's"
				      : "no MAD for the SA");
		return;
	}
	r = sa_send(&a->sa, &mad);
	if (r)
		log_warn("%s: a MAD for the SA is lost: %s", a->nic.name, strerror(-r));
}

static void on_frames(struct agent *a)
{
	uint8_t frame[WIRE_MAX];
	struct wire_gsi gsi;
	uint64_t guid;
	bool same;
	int n;

	while ((n = nic_receive(&a->nic, frame, sizeof(frame))) > 0) {
		if (wire_asks(frame, (size_t)n, &guid)) {
			log_info("%s: the device with GUID 0x%016llx asks", a->nic.name,
				 (unsigned long long)guid);
			a->untold = a->port.state;
			a->tell_at = 0;
			look_and_tell(a);
		} else if (wire_has(frame, (size_t)n, a->frame, &same)) {
			if (same)
				device_has_it(a);
		} else if (!wire_gsi_read(frame, (size_t)n, &gsi)) {
			on_gsi(a, &gsi);
		} else {
			refuse(a, "malformed");
		}
	}
	if (n < 0)
		log_warn("%s: %s", a->nic.name, strerror(-n));
}

static void on_sa(struct agent *a)
{
	uint8_t frame[WIRE_GSI_BYTES];
	struct wire_gsi gsi;
	struct sa_mad mad;
	int r;

	while (!sa_receive(&a->sa, &mad)) {
		if (bridge_down(&a->bridge, &a->port, &mad, &gsi) || !a->nic.ifindex)
			continue;
		wire_gsi_write(&gsi, frame);
		r = nic_send(&a->nic, frame, sizeof(frame));
		if (r)
			log_debug("%s: an answer is lost: %s", a->nic.name, strerror(-r));
	}
}

static void on_timer(struct agent *a)
{
	uint64_t ticks;

	if (read(a->timer, &ticks, sizeof(ticks)) > 0)
		look_and_tell(a);
}

static int serve(struct agent *a)
{
	struct pollfd p[] = {{a->nic.events, POLLIN, 0},
			     {a->nic.packets, POLLIN, 0},
			     {a->sa.received, POLLIN, 0},
			     {a->timer, POLLIN, 0}};

	if (poll(p, ARRAY_SIZE(p), -1) < 0)
		return errno == EINTR ? 0 : -errno;
	/* Links first: the socket for packets may be another one then. */
	if (p[0].revents)
		on_links(a);
	else if (p[1].revents)
		on_frames(a);
	if (p[2].revents)
		on_sa(a);
	if (p[3].revents)
		on_timer(a);
	return 0;
}

static int enter(const char *netns)
{
	int fd AUTO_CLOSE = open(netns, O_RDONLY | O_CLOEXEC);

	return fd < 0 || setns(fd, CLONE_NEWNET) ? -errno : 0;
}

/* The simulator's sockets are those of the network namespace where we begin, so they come first. */
static int start(struct agent *a, const char *netns, const char *tap)
{
	int r = port_open(&a->mad);

	if (!r)
		r = sa_open(&a->sa);
	if (r) {
		log_error("no umad port: %s", strerror(-r));
		return r;
	}
	r = enter(netns);
	if (!r)
		r = nic_open(&a->nic, tap);
	if (r) {
		log_error("network namespace %s: %s", netns, strerror(-r));
		return r;
	}
	a->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return a->timer < 0 ? -errno : 0;
}

int main(int argc, char **argv)
{
	static struct agent a;
	uint64_t entry = 0;
	int r;

	log_init("port");
	if ((argc != 5 && argc != 7) || strcmp(argv[1], "--netns") || strcmp(argv[3], "--tap") ||
	    strlen(argv[4]) >= IF_NAMESIZE ||
	    (argc == 7 &&
	     (strcmp(argv[5], "--entry") || parse_u64(argv[6], 1, IBX_GUIDS - 1, &entry)))) {
		log_error("usage: lab_port --netns FILE --tap NAME (at most %d characters) "
			  "[--entry N (1 to %d)]",
			  IF_NAMESIZE - 1, IBX_GUIDS - 1);
		return 2;
	}
	a.entry = (unsigned)entry;
	a.fault_no_lid = str_eq(getenv("IBVMIG_FAULT"), "no-lid");
	r = start(&a, argv[2], argv[4]);
	if (r)
		return 1;
	log_info("%s: waits for the tap", a.nic.name);
	on_links(&a);
	while (!r)
		r = serve(&a);
	log_error("poll: %s", strerror(-r));
	return 1;
}
