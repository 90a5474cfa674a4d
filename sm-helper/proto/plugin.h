/* SPDX-License-Identifier: GPL-2.0-or-later */
/* ibvmig-sm <-> libibvmigsm.so: AF_UNIX SOCK_SEQPACKET, one fixed struct per packet, a request and
 * then its reply. Both ends run on one machine, so numbers (GUIDs and LIDs too) are in host order.
 * A packet of the wrong version or length is answered with -EPROTO and changes nothing. */
#ifndef IBVMIG_SM_HELPER_PROTO_PLUGIN_H
#define IBVMIG_SM_HELPER_PROTO_PLUGIN_H

#include <stdint.h>

#define SM_PROTO_MAGIC   0x6962736du /* "ibsm" */
#define SM_PROTO_VERSION 16

#define SM_ASSIGN_MAX         128 /* ports in one batch: 64 moves */
#define SM_ENDPORTS_MAX       256
#define SM_LINKS_MAX          1024
#define SM_LFT_BLOCKS         256
#define SM_PATHS_MAX          256 /* changed paths that a reply tells */
#define SM_RECORDS_MAX        256 /* path records asked for at once */
#define SM_PARKED_MAX         1024
#define SM_CHANGES_MAX        1024 /* changed paths in one packet */
#define SM_PKEYS_MAX          128  /* P_Keys of a GUID */
#define SM_PARTITIONS_MAX     512
#define SM_DESC_MAX           64
#define SM_OWNER_NAME_MAX     128
#define SM_REASON_MAX         192
#define SM_PARTITION_NAME_MAX 32
#define SM_DEADLINE_MAX_MS    60000
#define SM_READ_WAIT_MS       10000

enum sm_op {
	SM_OP_STATUS = 1,
	SM_OP_ENDPORTS = 2,
	SM_OP_LINKS = 3,
	SM_OP_LFT = 4,
	SM_OP_ASSIGN = 5,
	SM_OP_RECORDS = 6,
	SM_OP_WATCH = 7,
	SM_OP_SWEEP = 8,
	SM_OP_INTENT = 9,
	SM_OP_GUIDS = 10,
	SM_OP_PARKED = 11,
	SM_OP_MEMBERSHIPS = 12,
	SM_OP_PARTITIONS = 13,
	SM_OP_MEMBERS = 14,
	SM_OP_REROUTE = 15,
	SM_OP_OWNER = 16,
	SM_OP_HOMES = 17,
	SM_OP_COUNT
};

struct sm_head {
	uint32_t magic;
	uint16_t version;
	uint16_t op;    /* a reply repeats the request's */
	uint32_t id;    /* likewise */
	uint32_t bytes; /* length of the whole packet */
};

struct sm_reply_head {
	struct sm_head head;
	int32_t error; /* 0 or -errno; on an error only the head and the reason follow */
	uint32_t pad;
	char reason[SM_REASON_MAX]; /* a line, "" without an error */
};

enum sm_state { /* IBA SMInfo */
		SM_STATE_NOT_ACTIVE,
		SM_STATE_DISCOVERING, /* about to be master */
		SM_STATE_STANDBY,
		SM_STATE_MASTER
};

/* The registry that may change this subnet, and the grant by which it may. A grant has a number
 * that no other has; it is the next one whenever an ibvmig-sm starts, so a copy of a registry's
 * file is told from the file. */
struct sm_owner {
	uint64_t registry; /* 0: nobody has claimed it yet */
	uint64_t epoch;    /* counts grants */
	uint64_t grant;
	uint64_t since_ms;            /* wall clock */
	char name[SM_OWNER_NAME_MAX]; /* for people: host and file */
};

/* SM_OP_OWNER: claims this connection's right to change something. Granted where nobody has the
 * subnet, where its registry has the grant `was`, and always with SM_OWNER_TAKE. -EKEYREJECTED:
 * another has it. The owner keeps the right by `owner.grant`. Without it what would change
 * something is answered with -EKEYREJECTED. Grants outlive OpenSM. */
enum sm_owner_flag { SM_OWNER_TAKE = 1 << 0 };

struct sm_owner_request {
	struct sm_head head;
	struct sm_owner owner; /* wanted; the epoch that it had before */
	uint64_t was;          /* grant before; 0: none */
	uint32_t flags;
	uint32_t pad;
};

struct sm_owner_reply {
	struct sm_reply_head h;
	struct sm_owner owner; /* as granted */
};

/* SM_OP_STATUS. Counters start with OpenSM. */
struct sm_status_request {
	struct sm_head head;
};

struct sm_status_reply {
	struct sm_reply_head h;
	uint64_t sm_guid;
	uint64_t instance;   /* number of this OpenSM process; no other ever has it */
	uint64_t generation; /* changes with every sweep and batch: re-read the topology */
	uint64_t heavy_sweeps;
	uint64_t lft_smps;          /* sent by the plugin */
	uint64_t port_info_smps;    /* sent by the plugin */
	uint64_t lft_changes;       /* LFT blocks that OpenSM saw acknowledged, ours included */
	uint64_t sa_path_requests;  /* PathRecord requests that arrived */
	uint64_t repath_notices;    /* trap 69 */
	uint64_t guid_smps;         /* GUIDInfo, sent by the plugin */
	uint64_t pkey_smps;         /* P_KeyTable, sent by the plugin to write */
	uint64_t pkey_changes;      /* P_KeyTable blocks that OpenSM itself has written */
	uint64_t unpath_notices;    /* trap 68 */
	uint64_t gids_in, gids_out; /* traps 64 and 65 of OpenSM */
	uint64_t reroutes;          /* number of the last SM_OP_REROUTE */
	uint32_t switches, endports;
	uint16_t sm_lid;
	uint8_t sm_state; /* enum sm_state */
	uint8_t ready;    /* a sweep has completed, so the topology is whole */
	uint8_t sweeping; /* a heavy sweep runs now, or SM_OP_SWEEP's has not been made yet */
	uint8_t others;   /* other SMs in the fabric that are master or would take over */
	uint16_t parked;  /* as the total of SM_OP_PARKED, or UINT16_MAX */
	char plugin_version[16], opensm_version[32], engine[16];
	struct sm_owner owner; /* who may change something */
	uint32_t bound;        /* as the total of SM_OP_HOMES */
	uint32_t pad;
};

/* SM_OP_ENDPORTS: switches (port 0) and CA ports, in the order of their GUIDs. Like SM_OP_LINKS it
 * is answered between two heavy sweeps; -EBUSY if one runs for over SM_READ_WAIT_MS. */
struct sm_page_request {
	struct sm_head head;
	uint32_t first; /* index of the first record wanted */
	uint32_t pad;
};

enum sm_node_type { SM_NODE_CA = 1, SM_NODE_SWITCH = 2, SM_NODE_ROUTER = 3 }; /* IBA NodeInfo */

struct sm_endport {
	uint64_t node_guid, port_guid;
	uint64_t peer_guid; /* CA port: node GUID of the switch at the other end; 0: no link */
	uint16_t lid;
	uint16_t lft_top; /* switch: highest LID of its table */
	uint8_t type;
	uint8_t port;  /* 0 for a switch */
	uint8_t ports; /* number of ports of the node */
	uint8_t peer_port;
	uint8_t mtu, rate; /* IBA codes */
	uint8_t lmc; /* CA port, enhanced port 0 of a switch: it has 2^lmc LIDs, from lid on */
	uint8_t pad[5];
	char desc[SM_DESC_MAX];
};

struct sm_endports_reply {
	struct sm_reply_head h;
	uint64_t instance, generation;
	uint32_t total, count;
	struct sm_endport endport[SM_ENDPORTS_MAX]; /* only count of them are sent */
};

/* SM_OP_HOMES: places that show another GUID than without a VM, as far as batches have told. */
struct sm_home {
	uint64_t switch_guid, node_guid, port_guid;
	uint64_t parked_node, parked_guid; /* without a VM */
	uint64_t like;                     /* as in sm_target */
	uint16_t lid, own_lid;             /* likewise */
	uint8_t switch_port;
	uint8_t pad[3];
};

struct sm_homes_reply {
	struct sm_reply_head h;
	uint32_t total, count;
	struct sm_home home[SM_ENDPORTS_MAX]; /* only count of them are sent */
};

/* SM_OP_LINKS: links between switches, each once. */
struct sm_link {
	uint64_t guid[2]; /* node GUIDs */
	uint8_t port[2];
	uint8_t pad[6];
};

struct sm_links_reply {
	struct sm_reply_head h;
	uint64_t instance, generation;
	uint32_t total, count;
	struct sm_link link[SM_LINKS_MAX]; /* only count of them are sent */
};

/* SM_OP_LFT: a switch's table as OpenSM believes it. */
struct sm_lft_request {
	struct sm_head head;
	uint64_t switch_guid;
	uint32_t first_block;
	uint32_t pad;
};

struct sm_lft_reply {
	struct sm_reply_head h;
	uint32_t blocks_total, count;
	uint8_t lft[SM_LFT_BLOCKS * 64]; /* only count blocks are sent */
};

/* SM_OP_ASSIGN. -EREMOTEIO: a switch or port did not take its SMP, all has been taken back; -EIO:
 * and that failed as well, a heavy sweep will tell. Other errors: nothing was sent; -EADDRINUSE: a
 * copy's LID is kept for a port that is away. "The VF at this switch port shows these GUIDs and has
 * this LID", for a batch of VFs at once; what is so already costs nothing. The GUIDs must be on the
 * VFs before. A bind is a batch of one that keeps its LID, a move two places that exchange their
 * LIDs. Several moves in one batch touch each block of each switch once. */
enum sm_assign_flag {
	SM_ASSIGN_NO_SWAP = 1 << 0,      /* fault: GUIDs only, neither LFTs nor PortInfo */
	SM_ASSIGN_FORCED_SWEEP = 1 << 1, /* fault: a heavy sweep afterwards */
	SM_ASSIGN_BACK = 1 << 2,         /* takes an earlier batch back: SM_OP_PARKED tells before
					    and after of that one */
	SM_ASSIGN_NO_PKEYS = 1 << 3,     /* fault: P_Keys stay behind */
	SM_ASSIGN_ORDERED = 1 << 4,      /* somebody sends to these LIDs: LFT blocks go in waves, so
					    that no packet loops; each wave is waited for */
	SM_ASSIGN_FLAGS = SM_ASSIGN_NO_SWAP | SM_ASSIGN_FORCED_SWEEP | SM_ASSIGN_BACK |
			  SM_ASSIGN_NO_PKEYS | SM_ASSIGN_ORDERED
};

struct sm_target {
	uint64_t switch_guid; /* node GUID of the (v)switch at which the VF hangs */
	uint64_t node_guid, port_guid;
	uint64_t was_guid;    /* port GUID that the place must have before, else -ESTALE; 0: any */
	uint64_t parked_guid; /* port GUID that the VF has without a VM; 0: that which it had */
	uint64_t like_guid;   /* The LID is a copy: it takes the routes of this port, or of the
				 place's own LID where the port hangs on another switch. The place's
				 own LID waits. 0: it is no copy. */
	uint16_t lid;         /* 0: the one that the place has now, or of its own after a copy */
	uint16_t was_lid;     /* likewise */
	/* For a copy, or without `lid`: the LID that is the place's own, as far as ibvmig-sm
	 * knows; counts where OpenSM does not know it. 0: not known. */
	uint16_t own_lid;
	uint16_t was_own_lid; /* before; what OpenSM knows from another time as master is not so */
	uint8_t switch_port;
	uint8_t pad[7];
};

struct sm_assign_request {
	struct sm_head head;
	uint32_t flags;
	uint32_t deadline_ms; /* waiting for a sweep to end, and for the answers to the SMPs */
	uint32_t count;
	uint32_t pad;
	struct sm_target target[SM_ASSIGN_MAX]; /* only count of them are sent */
};

/* SM_OP_SWEEP: asks OpenSM for a heavy sweep and does not wait for it. All has been discovered
 * since when the status says that sweeping is 0. heavy_sweeps may be the same as before, for
 * OpenSM, asked while it discovers, begins again within the sweep that runs. -EHOSTDOWN: it is not
 * master. */
struct sm_sweep_request {
	struct sm_head head;
};

struct sm_sweep_reply {
	struct sm_reply_head h;
};

/* SM_OP_INTENT, to a standby: the master is about to carry out this batch, so if it does not live
 * to end it, who takes over mends its places (sm-helper/plugin/master/takeover.h). It replaces the
 * one before. A GUID or LID of 0 is not known. -EPERM: this OpenSM is master itself. */
struct sm_intent_request {
	struct sm_head head;
	uint32_t count; /* 0: nothing is under way */
	uint32_t pad;
	struct sm_target target[SM_ASSIGN_MAX]; /* only count of them are sent */
};

struct sm_intent_reply {
	struct sm_reply_head h;
};

/* A path between a GUID that has moved and another port, as it is now. */
struct sm_path {
	uint64_t moved, peer;
	uint8_t sl_to, sl_from; /* from the peer to the moved one, and back */
	uint8_t mtu, rate;      /* IBA codes */
	uint8_t pad[4];
};

struct sm_assign_reply {
	struct sm_reply_head h;
	uint32_t lft_smps, port_info_smps;
	uint32_t switches_updated, switches_total;
	uint32_t paths_changed;  /* ports for which SL, MTU or rate towards a moved GUID changed */
	uint32_t repath_notices; /* trap 69 */
	uint64_t lock_us, elapsed_us; /* lock_us: OpenSM's lock, the longest exclusive hold */
	uint64_t pkey_us; /* of elapsed_us: P_Key tables, written, answered and read back */
	uint64_t instance, generation_before, generation; /* generation at the batch's beginning and
							     end; equal where nothing was changed */
	struct sm_target before[SM_ASSIGN_MAX]; /* former contents of the places; request's order */
	uint16_t lid[SM_ASSIGN_MAX];            /* LIDs of the places now */
	uint16_t own_lid[SM_ASSIGN_MAX];        /* the own LID; another one where `lid` is a copy */
	uint16_t changed[SM_ASSIGN_MAX];        /* share of paths_changed that is of its GUID */
	uint32_t path_count;                    /* the first of paths_changed */
	uint32_t switch_info_smps;         /* LinearFDBTop of switches whose tables got longer */
	uint32_t pkey_smps;                /* P_Key tables that were written */
	uint32_t waves;                    /* in which the LFT blocks were sent; 1: unordered */
	struct sm_path path[SM_PATHS_MAX]; /* only path_count of them are sent */
};

/* SM_OP_GUIDS. It is for VFs that share the LID of their port: "this entry of that port's GUID
 * table shows this GUID", for a batch of entries at once. An entry that is so already costs
 * nothing. A GUID that goes from one entry to another has left the first, as its port has answered,
 * before it is written to the second. So both must be in the batch. Neither LFTs nor LIDs change.
 * -EREMOTEIO: a port did not take its SMP, all has been taken back; -EIO: and that failed as well.
 * Other errors: nothing was sent. -EEXIST: another port, or an entry that is not in the batch, has
 * the GUID, or an entry shows a GUID that is neither wanted nor expected. -EOPNOTSUPP: the port has
 * no such entry. */
struct sm_slot {
	uint64_t port_guid; /* the port's own GUID */
	uint64_t guid;      /* wanted contents of the entry; 0: nothing */
	uint64_t was_guid;  /* contents that it may have before, besides `guid` and GUIDs of the
			       batch */
	uint16_t was_lid;   /* LID of `guid`, as peers know it; 0: nobody knows one */
	uint8_t index;      /* 1 to 255: entry 0 is the port's own GUID */
	uint8_t pad[5];
};

struct sm_guids_request {
	struct sm_head head;
	uint32_t deadline_ms; /* as in sm_assign_request */
	uint32_t count;
	struct sm_slot slot[SM_ASSIGN_MAX]; /* only count of them are sent */
};

struct sm_guids_reply {
	struct sm_reply_head h;
	uint32_t guid_smps;      /* sent to write entries */
	uint32_t paths_changed;  /* paths of GUIDs that have another LID than was_lid, to ports and
				    GUIDs */
	uint32_t repath_notices; /* trap 69 */
	uint32_t pkey_smps;      /* P_Key tables that were written */
	uint64_t lock_us, elapsed_us, pkey_us;            /* as in sm_assign_reply */
	uint64_t instance, generation_before, generation; /* likewise */
	uint64_t before[SM_ASSIGN_MAX];  /* former contents of the entries; request's order */
	uint16_t lid[SM_ASSIGN_MAX];     /* LIDs of the entries' ports */
	uint16_t changed[SM_ASSIGN_MAX]; /* share of paths_changed that is of its GUID */
	uint32_t path_count;             /* the first of paths_changed */
	uint32_t pad2;
	struct sm_path path[SM_PATHS_MAX]; /* only path_count of them are sent */
};

/* SM_OP_PARKED: what batches have left that failed and whose undo failed as well (-EIO). It is all
 * that they were to change, the whole of it until the last of it is settled, then nothing. A heavy
 * sweep writes what is not settled. */
enum sm_parked_flag {
	SM_PARKED_DROP_GONE = 1 << 0
}; /* entries with `gone` do not count any more */

struct sm_parked_request {
	struct sm_head head;
	uint32_t first; /* index of the first entry wanted */
	uint32_t flags;
};

struct sm_parked_entry {
	uint64_t switch_guid;   /* the switch with this LFT; or the one at which the port hangs */
	uint16_t lid;           /* 0: no LFT entry, but the LID of the port behind switch_port */
	uint16_t before, after; /* the batch: a port of the switch (255: none), or a LID */
	uint16_t wanted;        /* wanted by OpenSM there now, likewise */
	uint8_t switch_port;    /* lid 0 only */
	uint8_t settled;        /* the switch has told since that it holds what is wanted */
	uint8_t gone;           /* OpenSM sees the switch or port no more, and routes past it */
	uint8_t pad[5];
};

struct sm_parked_reply {
	struct sm_reply_head h;
	uint64_t instance, since_ms; /* since_ms: wall clock, the last of these batches */
	uint32_t total, count;
	char why[SM_REASON_MAX];                     /* it failed */
	struct sm_parked_entry entry[SM_PARKED_MAX]; /* only count of them are sent */
};

/* SM_OP_RECORDS: path records as OpenSM's SA would give them, without an SA query. */
struct sm_record_key {
	uint64_t sguid, dguid; /* port GUIDs */
	uint16_t pkey;         /* 0: whichever both ports have */
	uint8_t pad[6];
};

struct sm_record {
	int16_t error; /* 0; -ENOENT: the SA knows no such path; -EOPNOTSUPP: only the SA can tell
			*/
	uint16_t dlid, slid, pkey;
	uint8_t sl, mtu, rate; /* IBA codes */
	uint8_t pad[5];
};

struct sm_records_request {
	struct sm_head head;
	uint32_t count; /* 1 to SM_RECORDS_MAX */
	uint32_t pad;
	struct sm_record_key key[SM_RECORDS_MAX]; /* only count of them are sent */
};

struct sm_records_reply {
	struct sm_reply_head h;
	uint64_t instance, generation; /* state of OpenSM that all records are of */
	uint64_t prefix;               /* prefix of the subnet's GIDs */
	uint32_t count;                /* the request's */
	uint32_t pad;
	struct sm_record record[SM_RECORDS_MAX]; /* request's order; only count of them are sent */
};

/* SM_OP_MEMBERSHIPS: the P_Keys that a port which shows this GUID has by the partition policy,
 * whether one shows it now or not. Bit 15: full member. */
struct sm_memberships_request {
	struct sm_head head;
	uint32_t count; /* 1 to SM_RECORDS_MAX */
	uint32_t pad;
	uint64_t guid[SM_RECORDS_MAX]; /* only count of them are sent */
};

struct sm_memberships {
	uint16_t count; /* of P_Keys; may be more than the first SM_PKEYS_MAX, which are told */
	uint16_t pkey[SM_PKEYS_MAX];
	uint8_t pad[6];
};

struct sm_memberships_reply {
	struct sm_reply_head h;
	uint64_t instance, generation;
	uint32_t count; /* the request's */
	uint32_t pad;
	struct sm_memberships of[SM_RECORDS_MAX]; /* request's order; only count of them are sent */
};

/* SM_OP_PARTITIONS: the policy itself, in its order: for a port the last entry that fits counts.
 * Asked for by a struct sm_page_request. */
enum sm_who {
	SM_WHO_GUID,
	SM_WHO_ALL,
	SM_WHO_CAS,
	SM_WHO_SWITCHES,
	SM_WHO_ROUTERS,
	SM_WHO_SELF,  /* OpenSM's own port */
	SM_WHO_NOBODY /* tells of the partition only */
};

enum sm_member_as {
	SM_MEMBER_NONE,
	SM_MEMBER_LIMITED,
	SM_MEMBER_FULL,
	SM_MEMBER_BOTH /* only with OpenSM's allow_both_pkeys */
};

struct sm_partition_entry {
	uint64_t guid; /* SM_WHO_GUID only */
	uint16_t pkey; /* without bit 15 */
	uint8_t who;   /* enum sm_who */
	uint8_t as;    /* enum sm_member_as */
	uint8_t ours;  /* added by SM_OP_MEMBERS; else it is in OpenSM's own file */
	uint8_t pad[3];
	char name[SM_PARTITION_NAME_MAX]; /* of the partition; "" without one */
};

struct sm_partitions_reply {
	struct sm_reply_head h;
	uint64_t instance, generation;
	uint32_t total, count;
	uint32_t bad_line; /* OpenSM gives its file up at this line, and all ports are full members
			      of 0x7fff and of nothing else; 0: it does not */
	uint32_t pad;
	struct sm_partition_entry entry[SM_PARTITIONS_MAX]; /* only count of them are sent */
};

/* SM_OP_MEMBERS: adds members to a partition of OpenSM's file, and takes such away again. They come
 * after all that the file says. P_Key tables of ports that show the GUIDs now are written and read
 * back before the answer. -ENOENT: there is no such partition. -EEXIST: a GUID to be taken away is
 * a member by the file itself. -EACCES: OpenSM's own port would be a limited member of 0x7fff.
 * -ENOSPC: a port has no room for one more P_Key. -EREMOTEIO, -EIO: as of an assign batch. */
enum sm_members_flag {
	SM_MEMBERS_STORE = 1 << 0 /* to a standby: kept for the day on which it is master */
};

struct sm_member {
	uint64_t guid;
	uint8_t as; /* enum sm_member_as, but BOTH; NONE: taken away */
	uint8_t pad[7];
};

struct sm_members_request {
	struct sm_head head;
	uint16_t pkey; /* bit 15 does not matter */
	uint16_t flags;
	uint32_t deadline_ms; /* as in sm_assign_request */
	uint32_t count;
	uint32_t pad;
	struct sm_member member[SM_ASSIGN_MAX]; /* only count of them are sent */
};

struct sm_members_reply {
	struct sm_reply_head h;
	uint64_t instance, generation;
	uint32_t changed; /* how many were not so already */
	uint32_t pkey_smps;
};

/* SM_OP_WATCH: answered as soon as the state is another one than this. Until then the connection
 * carries nothing else; its end says that OpenSM has ended. */
struct sm_watch_request {
	struct sm_head head;
	uint64_t instance, generation; /* 0, 0: answered at once */
};

struct sm_watch_reply {
	struct sm_reply_head h;
	uint64_t instance, generation;
};

/* SM_OP_REROUTE: which paths the last heavy sweep has changed, against the one before it. With
 * `first` 0 it is answered as soon as there is another comparison than `after`, as SM_OP_WATCH;
 * else at once, with more of the list of comparison `after`. -ESTALE: there is a later one. */
struct sm_reroute_request {
	struct sm_head head;
	uint64_t instance, after; /* 0, 0: answered when there is any */
	uint32_t first;           /* index of the first change wanted */
	uint32_t pad;
};

enum sm_change_kind {
	SM_CHANGE_SWITCHES,    /* from all CA ports of a switch to all of another: node GUIDs */
	SM_CHANGE_SWITCH_PORT, /* from all CA ports of a switch (node GUID) to a port (port GUID) */
	SM_CHANGE_PORTS,       /* between two ports: port GUIDs */
	SM_CHANGE_PORT,        /* another LID, link or switch of this port (`to`): all its paths */
	SM_CHANGE_GONE,        /* the port (`to`) is not there any more */
	SM_CHANGE_BACK,        /* the port is there, and was not */
};

struct sm_change {
	uint64_t from, to;
	uint8_t kind;       /* enum sm_change_kind */
	uint8_t none;       /* there is no route now */
	uint8_t sl_was, sl; /* for pairs */
	uint8_t mtu, rate;  /* IBA codes; 0: as in all paths */
	uint8_t pad[2];
};

struct sm_reroute_reply {
	struct sm_reply_head h;
	uint64_t instance, number;  /* of the comparison; it begins with 1 */
	uint64_t generation;        /* state that it is of */
	uint64_t pairs, changed;    /* ordered pairs compared, and those that differ */
	uint64_t elapsed_us, bytes; /* time of the comparison, memory that is kept for the next */
	uint32_t ports_changed, gone, back;
	uint8_t unit[2]; /* rows and columns: 0 nothing depends on the place, 1 switches, 2 ports */
	uint8_t all;     /* any path may have changed: there was nothing to compare with */
	uint8_t pad;
	uint32_t total, count; /* changes that are listed, and those of this packet */
	struct sm_change change[SM_CHANGES_MAX]; /* only count of them are sent */
};

#endif
