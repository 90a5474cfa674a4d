/* SPDX-License-Identifier: GPL-2.0-or-later */
/* MADs of class SubnAdm between the port and the subnet manager, through the port's own umad. */
#ifndef IBVMIG_LAB_PORT_SA_H
#define IBVMIG_LAB_PORT_SA_H

#include <stdint.h>

#define SA_MAD_BYTES 256

struct sa_mad {
	uint32_t status; /* not 0: our own MAD comes back, since it did not arrive (errno) */
	uint16_t lid;    /* of the other end */
	uint32_t qp;     /* the same */
	uint32_t bytes;  /* of the MAD, as far as it came: at most SA_MAD_BYTES */
	uint8_t mad[SA_MAD_BYTES];
};

struct sa {
	int umad;
	int agent;
	int received; /* readable where sa_receive() has one */
	int into;     /* the receiver's end of it */
};

/* Opens it and starts the thread that receives; *sa stays where it is for the life of the process.
 * 0 or -errno. */
int sa_open(struct sa *sa);

/* 0 or -errno. */
int sa_send(struct sa *sa, const struct sa_mad *mad);

/* 0, or -EAGAIN when none waits. */
int sa_receive(struct sa *sa, struct sa_mad *ret_mad);

#endif
