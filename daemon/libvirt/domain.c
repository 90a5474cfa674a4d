/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/domain.h"
#include "common/ib.h"
#include "common/util.h"
#include "daemon/libvirt/domain_xml.h"

#include <errno.h>
#include <libxml/parser.h>
#include <libxml/xpath.h>
#include <libxml/xpathInternals.h>
#include <string.h>
#include <strings.h>

#define ROOT_PORTS_MAX 256

static void free_xpath(xmlXPathContextPtr *x)
{
	xmlXPathFreeContext(*x);
}

static void free_result(xmlXPathObjectPtr *r)
{
	xmlXPathFreeObject(*r);
}

#define AUTO_XPATH  __attribute__((cleanup(free_xpath)))
#define AUTO_RESULT __attribute__((cleanup(free_result)))

/* A copy that libc's free() takes; NULL where the expression selects nothing. */
static char *text_at(xmlXPathContextPtr x, const char *expr)
{
	xmlXPathObjectPtr r AUTO_RESULT = xmlXPathEvalExpression((const xmlChar *)expr, x);
	xmlChar *text;
	char *copy;

	if (!r || xmlXPathNodeSetIsEmpty(r->nodesetval))
		return NULL;
	text = xmlXPathCastNodeToString(r->nodesetval->nodeTab[0]);
	copy = text ? strdup((char *)text) : NULL;
	xmlFree(text);
	return copy;
}

static char *attr(xmlNodePtr node, const char *name)
{
	xmlChar *text = xmlGetNoNsProp(node, (const xmlChar *)name);
	char *copy = text ? strdup((char *)text) : NULL;

	xmlFree(text);
	return copy;
}

static char *vf_pf(xmlNodePtr node, struct vf_want *vf)
{
	char *pf AUTO_FREE = attr(node, "pf");

	if (!pf || !*pf)
		return strf("pf is missing: name the PF whose VF the VM gets, as in pf=\"pf0\"");
	if (strlen(pf) >= sizeof vf->pf)
		return strf("pf \"%.20s...\" is too long: at most %zu characters", pf,
			    sizeof vf->pf - 1);
	strcpy(vf->pf, pf);
	return NULL;
}

static char *vf_vguid(xmlNodePtr node, struct vf_want *vf)
{
	char *vguid AUTO_FREE = attr(node, "vguid");

	if (!vguid)
		return strf("vguid is missing: give 0x and 16 hex digits");
	if (ib_guid_parse(vguid, &vf->vguid))
		return strf("vguid \"%.40s\" is malformed: it must be 0x and 16 hex digits, "
			    "neither 0 nor all ones",
			    vguid);
	return NULL;
}

static char *vf_pkey(xmlNodePtr node, struct vf_want *vf)
{
	char *pkey AUTO_FREE = attr(node, "pkey");

	if (!pkey)
		return strf("pkey is missing: give one of the PF's PKeys, 0x0001 to 0xffff");
	if (ib_pkey_parse(pkey, &vf->pkey))
		return strf("pkey \"%.40s\" is malformed: it must be 0x0001 to 0xffff, and not "
			    "0x8000",
			    pkey);
	return NULL;
}

static char *vf_index(xmlNodePtr node, struct vf_want *vf)
{
	char *index AUTO_FREE = attr(node, "index");
	uint64_t n = 0;

	if (index && parse_u64(index, 0, DOMAIN_VFS_MAX - 1, &n))
		return strf("index \"%.20s\" is wrong: it must be 0 to %d", index,
			    DOMAIN_VFS_MAX - 1);
	vf->index = (unsigned)n;
	return NULL;
}

static char *vf_pci(xmlNodePtr node, struct vf_want *vf)
{
	char *pci AUTO_FREE = attr(node, "pci");
	unsigned n[4];
	int end = 0;

	if (!pci)
		return NULL;
	if (strlen(pci) != strlen("0000:3b:00.2") ||
	    sscanf(pci, "%4x:%2x:%2x.%1o%n", &n[0], &n[1], &n[2], &n[3], &end) != 4 || pci[end])
		return strf("pci \"%.40s\" is malformed: it must be a PCI address as "
			    "0000:3b:00.2",
			    pci);
	strcpy(vf->pci, pci);
	return NULL;
}

/* Returns what is wrong with one element, owned by the caller, or NULL. */
static char *parse_vf(xmlNodePtr node, struct vf_want *vf)
{
	char *problem = vf_pf(node, vf);

	if (!problem)
		problem = vf_vguid(node, vf);
	if (!problem)
		problem = vf_pkey(node, vf);
	if (!problem)
		problem = vf_pci(node, vf);
	return problem ? problem : vf_index(node, vf);
}

/* The VFs leave together: one strategy, said once or alike. */
static char *parse_strategy(xmlNodePtr node, struct domain_info *info, bool *said)
{
	char *text AUTO_FREE = attr(node, "strategy");
	enum domain_strategy strategy;

	if (!text)
		return NULL;
	if (strategy_parse(text, &strategy))
		return strf(
			"strategy \"%.20s\" is unknown: it must be auto, native, late, early or "
			"cold",
			text);
	if (*said && strategy != info->strategy)
		return strf("strategy \"%s\" of one VF and \"%s\" of another: all VFs of a VM "
			    "leave together, give one strategy",
			    strategy_name(info->strategy), text);
	info->strategy = strategy;
	*said = true;
	return NULL;
}

static char *check_twins(const struct domain_info *info)
{
	for (unsigned i = 1; i < info->vf_count; i++) {
		if (info->vfs[i].index == info->vfs[i - 1].index)
			return strf("index %u is that of two <ibvmig:vf> elements: each needs its "
				    "own, 0 to %d",
				    info->vfs[i].index, DOMAIN_VFS_MAX - 1);
		for (unsigned k = 0; k < i; k++)
			if (info->vfs[i].vguid == info->vfs[k].vguid)
				return strf("vguid 0x%016llx is that of two <ibvmig:vf> elements: "
					    "a vGUID must be unique in the subnet",
					    (unsigned long long)info->vfs[i].vguid);
	}
	return NULL;
}

static int by_index(const void *a, const void *b)
{
	const struct vf_want *x = a, *y = b;

	return (int)x->index - (int)y->index;
}

static char *parse_vfs(xmlNodeSetPtr nodes, struct domain_info *info)
{
	char *problem = NULL;
	bool said = false;

	if (nodes->nodeNr > DOMAIN_VFS_MAX)
		return strf("there are %d <ibvmig:vf> elements; a VM can have %d VFs",
			    nodes->nodeNr, DOMAIN_VFS_MAX);
	info->vf_count = (unsigned)nodes->nodeNr;
	for (unsigned i = 0; !problem && i < info->vf_count; i++) {
		problem = parse_vf(nodes->nodeTab[i], &info->vfs[i]);
		if (!problem)
			problem = parse_strategy(nodes->nodeTab[i], info, &said);
	}
	if (problem)
		return problem;
	qsort(info->vfs, info->vf_count, sizeof *info->vfs, by_index);
	return check_twins(info);
}

static void parse_metadata(xmlXPathContextPtr x, struct domain_info *info)
{
	xmlXPathObjectPtr r AUTO_RESULT = NULL;

	xmlXPathRegisterNs(x, (const xmlChar *)"ibvmig", (const xmlChar *)DOMAIN_XMLNS);
	r = xmlXPathEvalExpression((const xmlChar *)"/domain/metadata//ibvmig:vf", x);
	info->strategy = STRATEGY_AUTO;
	info->wants_vf = r && r->nodesetval && r->nodesetval->nodeNr > 0;
	if (info->wants_vf)
		info->problem = parse_vfs(r->nodesetval, info);
}

/* libvirt names root port N "pci.N"; a port holds one device, at the bus of that number. */
static void find_root_ports(xmlXPathContextPtr x, struct domain_info *info)
{
	xmlXPathObjectPtr ports AUTO_RESULT = xmlXPathEvalExpression(
		(const xmlChar *)"/domain/devices/controller[@type='pci'][@model='pcie-root-port']",
		x);
	xmlXPathObjectPtr used AUTO_RESULT = xmlXPathEvalExpression(
		(const xmlChar *)"/domain/devices/*/address[@type='pci']/@bus", x);
	bool is_port[ROOT_PORTS_MAX] = {0};
	uint64_t n;

	for (int i = 0; ports && ports->nodesetval && i < ports->nodesetval->nodeNr; i++) {
		char *index AUTO_FREE = attr(ports->nodesetval->nodeTab[i], "index");

		if (index && !parse_u64(index, 1, ROOT_PORTS_MAX - 1, &n))
			is_port[n] = true;
	}
	for (int i = 0; used && used->nodesetval && i < used->nodesetval->nodeNr; i++) {
		xmlChar *bus = xmlXPathCastNodeToString(used->nodesetval->nodeTab[i]);

		if (bus && !parse_u64((char *)bus, 0, ROOT_PORTS_MAX - 1, &n))
			is_port[n] = false;
		xmlFree(bus);
	}
	/* The last ones: libvirt gives out the first ones for its own hot-plug. */
	for (unsigned i = ROOT_PORTS_MAX - 1; i > 0 && info->root_port_count < DOMAIN_VFS_MAX; i--)
		if (is_port[i])
			snprintf(info->root_ports[info->root_port_count++],
				 sizeof *info->root_ports, "pci.%u", i);
}

static int parse_identity(xmlXPathContextPtr x, struct domain_info *info)
{
	char *uuid AUTO_FREE = text_at(x, "/domain/uuid");

	info->name = text_at(x, "/domain/name");
	if (!uuid || strlen(uuid) != sizeof info->uuid - 1 || !info->name)
		return -EBADMSG;
	strcpy(info->uuid, uuid);
	return 0;
}

int domain_parse(const char *xml, size_t bytes, struct domain_info **ret_info)
{
	xmlDocPtr doc AUTO_DOC = bytes > DOMAIN_XML_MAX
					 ? NULL
					 : xmlReadMemory(xml, (int)bytes, "domain.xml", NULL,
							 XML_PARSE_NONET | XML_PARSE_NOERROR |
								 XML_PARSE_NOWARNING);
	xmlXPathContextPtr x AUTO_XPATH = doc ? xmlXPathNewContext(doc) : NULL;
	struct domain_info *info = x ? calloc(1, sizeof *info) : NULL;

	if (!info || parse_identity(x, info)) {
		domain_free(info);
		return -EBADMSG;
	}
	parse_metadata(x, info);
	find_root_ports(x, info);
	info->channel_path = text_at(x, "/domain/devices/channel[target/@name='" DOMAIN_CHANNEL
					"']/source/@path");
	info->channel_alias = text_at(x, "/domain/devices/channel[target/@name='" DOMAIN_CHANNEL
					 "']/alias/@name");
	*ret_info = info;
	return 0;
}

void domain_free(struct domain_info *info)
{
	if (!info)
		return;
	free(info->name);
	free(info->problem);
	free(info->channel_path);
	free(info->channel_alias);
	free(info);
}

void domain_dev_id(const struct vf_want *vf, char ret_id[static QMP_DEV_ID])
{
	snprintf(ret_id, QMP_DEV_ID, "ibvf%u", vf->index);
}
