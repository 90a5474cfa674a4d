/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A domain's XML where we write into it. The mark of a saved VM comes in a file from a user; the
 * hook adds devices for a QEMU that waits for a migration. A written part must be read back, and is
 * written once however often it is asked for. */
#include <libxml/parser.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "daemon/libvirt/domain_device.h"
#include "daemon/libvirt/domain_saved.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct domain_saved ours = {.id = "31930ec8-76fd-4d73-b2b6-60419f18a186",
					 .host = "hosta",
					 .url = "https://10.0.0.1:7611"};

static const struct domain_plug plug = {
	.commands = "[{\"execute\":\"netdev_add\",\"arguments\":{\"type\":\"user\",\"id\":\"n\"}},"
		    "{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"vfio-pci\"}}]",
	.dev_id = "ibvf0",
	.bus = "pci.5",
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

static void mark(const char *xml)
{
	char *marked AUTO_FREE = domain_saved_mark(xml, &ours);
	struct domain_saved s;

	if (!marked)
		return;
	must(domain_saved_parse(marked, &s) && !memcmp(&s, &ours, sizeof s));
}

static void add_devices(const char *xml)
{
	char error[HTTP_ERROR_MAX], *once AUTO_FREE = NULL, *again AUTO_FREE = NULL,
					  *without AUTO_FREE = NULL;

	if (domain_with_devices(xml, &plug, 1, &once, error))
		return;
	must(once && !domain_with_devices(once, &plug, 1, &again, error) && again);
	must(!strcmp(once, again));
	must(!domain_with_devices(once, NULL, 0, &without, error) && without);
	must(strlen(without) < strlen(once));
}

/* libvirt, from which all of it comes, writes no prefix that is not declared. */
static bool has_namespaces(const char *xml)
{
	xmlParserCtxtPtr c = xmlNewParserCtxt();
	xmlDocPtr doc = xmlCtxtReadMemory(c, xml, (int)strlen(xml), "domain.xml", NULL,
					  XML_PARSE_NONET | XML_PARSE_NOERROR |
						  XML_PARSE_NOWARNING);
	bool has = doc && c->nsWellFormed;

	xmlFreeDoc(doc);
	xmlFreeParserCtxt(c);
	return has;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *xml AUTO_FREE = strndup((const char *)data, size);
	struct domain_saved s;

	if (!xml)
		return 0;
	if (domain_saved_parse(xml, &s))
		must(*s.id && *s.host && *s.url);
	if (!has_namespaces(xml))
		return 0;
	mark(xml);
	add_devices(xml);
	return 0;
}
