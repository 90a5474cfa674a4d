/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Fabrics made to measure: fat-trees, meshes, tori and irregular ones, with LIDs, without LFTs. */
#ifndef IBVMIG_VSWITCH_NETS_GEN_H
#define IBVMIG_VSWITCH_NETS_GEN_H

#include "vswitch/model/fabric.h"

#define GEN_LEVELS_MAX 4

enum gen_shape { GEN_XGFT, GEN_MESH, GEN_TORUS, GEN_IRREGULAR };

enum gen_vfs {
	GEN_PORTS,    /* VFs share the port of their PF, as on real HCAs */
	GEN_VSWITCHES /* HCAs are small switches with their PF and VFs behind them, as in ibsim */
};

struct gen_spec {
	enum gen_shape shape;
	/* XGFT(levels; down[0..]; up[0..]): a node of level i has down[i] children and, in the
	 * level above it, up[i + 1] parents. up[0] is 1: hosts have one link. */
	unsigned levels, down[GEN_LEVELS_MAX], up[GEN_LEVELS_MAX];
	unsigned dims, size[3];    /* mesh, torus */
	unsigned switches, degree; /* irregular: links to other switches per switch, on average */
	uint64_t seed;             /* irregular */
	unsigned hosts;            /* per switch of a mesh, torus or irregular net */
	unsigned vfs;              /* per host */
	unsigned parked;           /* VFs among these with a LID of their own from the start */
	enum gen_vfs kind;
	unsigned lmc;    /* LMC of the hosts' own ports */
	unsigned vf_lmc; /* of VFs */
};

/* "324", "648", "5832", "11664" (hosts; 36-port switches), "xgft:18,36/18" (children per level /
 * parents per level above the hosts), "mesh:3x2", "torus:8x8", "irregular:30,3,7" (switches,
 * links, seed); then ",hosts=N,vfs=N,parked=N,lmc=N,vflmc=N,vswitch". 0 or
 * -EINVAL. */
int gen_parse(const char *text, struct gen_spec *ret_spec, struct fabric_error *e);

/* 0, -ENOSPC (more LIDs than there are), -EINVAL, -ENOMEM; then *ret_fabric is empty. */
int gen_fabric(const struct gen_spec *spec, struct fabric *ret_fabric, struct fabric_error *e);

/* Hosts of a fabric that the spec makes, and its switches without vSwitches. */
unsigned gen_hosts(const struct gen_spec *spec);
unsigned gen_switches(const struct gen_spec *spec);

#endif
