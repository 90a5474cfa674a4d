/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/domain_device.h"
#include "common/json.h"
#include "common/util.h"
#include "daemon/libvirt/domain.h"
#include "daemon/libvirt/domain_xml.h"
#include "daemon/libvirt/qmp.h"

#include <errno.h>
#include <libxml/parser.h>
#include <libxml/tree.h>
#include <string.h>

#define QEMU_NS  "http://libvirt.org/schemas/domain/qemu/1.0"
#define MARK     "IBVMIG_ARGS" /* an environment variable that says how many arguments are ours */
#define ARGS_MAX 64

/* Ours are the last arguments, as many as the mark says. false: there is no mark. */
static bool remove_ours(xmlNodePtr line)
{
	uint64_t ours = 0;
	bool marked;

	for (xmlNodePtr n = line->children, next; n; n = next) {
		xmlChar *name = xmlGetProp(n, (const xmlChar *)"name");
		xmlChar *value = xmlGetProp(n, (const xmlChar *)"value");

		next = n->next;
		if (domain_xml_is(n, "env") && name && value && !strcmp((char *)name, MARK) &&
		    !parse_u64((char *)value, 1, ARGS_MAX, &ours)) {
			xmlUnlinkNode(n);
			xmlFreeNode(n);
		}
		xmlFree(name);
		xmlFree(value);
	}
	marked = ours;
	for (xmlNodePtr n = ours ? line->last : NULL, before; n && ours; n = before) {
		before = n->prev;
		if (!domain_xml_is(n, "arg"))
			continue;
		xmlUnlinkNode(n);
		xmlFreeNode(n);
		ours--;
	}
	return marked;
}

static xmlNodePtr command_line(xmlNodePtr root)
{
	xmlNodePtr line = domain_xml_child(root, "commandline");
	xmlNsPtr ns = xmlSearchNsByHref(root->doc, root, (const xmlChar *)QEMU_NS);

	if (line)
		return line;
	if (!ns)
		ns = xmlNewNs(root, (const xmlChar *)QEMU_NS, (const xmlChar *)"qemu");
	return ns ? xmlNewChild(root, ns, (const xmlChar *)"commandline", NULL) : NULL;
}

static void add(xmlNodePtr line, const char *element, const char *name, const char *value)
{
	xmlNodePtr n = xmlNewChild(line, line->ns, (const xmlChar *)element, NULL);

	if (name)
		xmlNewProp(n, (const xmlChar *)"name", (const xmlChar *)name);
	xmlNewProp(n, (const xmlChar *)"value", (const xmlChar *)value);
}

/* QMP's words are QEMU's own arguments, as JSON (-device and -netdev: 6.2, -object: 6.0). */
static const char *option_of(struct json_object *command)
{
	const char *execute = json_opt_str(command, "execute", "");

	if (json_opt(command, "file"))
		return NULL;
	if (!strcmp(execute, "device_add"))
		return "-device";
	if (!strcmp(execute, "netdev_add"))
		return "-netdev";
	return !strcmp(execute, "object-add") ? "-object" : NULL;
}

/* *n: arguments added so far. */
static int add_command(xmlNodePtr line, struct json_object *c, const struct domain_plug *plug,
		       unsigned *n, char *error)
{
	struct json_object *args = json_opt(c, "arguments");
	const char *option = option_of(c);

	if (!option || !args || *n + 2 > ARGS_MAX) {
		snprintf(error, HTTP_ERROR_MAX,
			 "%s of the VF provider cannot be an argument of QEMU",
			 json_opt_str(c, "execute", "a command"));
		return -EOPNOTSUPP;
	}
	if (!strcmp(option, "-device")) {
		json_set_str(args, "id", plug->dev_id);
		json_set_str(args, "bus", plug->bus);
		if (plug->leaves_by && !strcmp(plug->leaves_by, QMP_LATE_DETACH))
			json_set_bool(args, QMP_LATE_DETACH, true);
		else if (plug->leaves_by)
			json_set_str(args, QMP_PAIR_ID, QMP_NO_PAIR);
	}
	add(line, "arg", NULL, option);
	add(line, "arg", NULL, json_text(args));
	*n += 2;
	return 0;
}

static int add_device(xmlNodePtr line, const struct domain_plug *plug, unsigned *n, char *error)
{
	char *wrapped AUTO_FREE = strf("{\"list\":%s}", plug->commands);
	struct json_object *wrapper AUTO_JSON = NULL, *list;
	int rc = 0;

	if (!wrapped || json_parse(wrapped, strlen(wrapped), &wrapper))
		return -EBADMSG;
	list = json_opt(wrapper, "list");
	for (size_t i = 0; !rc && i < json_count(list); i++)
		rc = add_command(line, json_object_array_get_idx(list, i), plug, n, error);
	return rc;
}

static int add_devices(xmlNodePtr line, const struct domain_plug *plugs, unsigned count,
		       char *error)
{
	char text[16];
	unsigned n = 0;
	int rc = line ? 0 : -EBADMSG;

	for (unsigned i = 0; !rc && i < count; i++)
		rc = add_device(line, &plugs[i], &n, error);
	snprintf(text, sizeof text, "%u", n);
	if (!rc)
		add(line, "env", MARK, text);
	return rc;
}

int domain_with_devices(const char *xml, const struct domain_plug *plugs, unsigned count,
			char **ret_xml, char error[static HTTP_ERROR_MAX])
{
	size_t bytes = strlen(xml);
	xmlDocPtr doc AUTO_DOC = bytes > DOMAIN_XML_MAX
					 ? NULL
					 : xmlReadMemory(xml, (int)bytes, "domain.xml", NULL,
							 XML_PARSE_NONET | XML_PARSE_NOERROR |
								 XML_PARSE_NOWARNING);
	xmlNodePtr root = doc ? xmlDocGetRootElement(doc) : NULL, line;
	bool changed = false;
	int rc = 0;

	if (!root || !domain_xml_is(root, "domain")) {
		snprintf(error, HTTP_ERROR_MAX, "the domain XML cannot be parsed");
		return -EBADMSG;
	}
	line = domain_xml_child(root, "commandline");
	if (line)
		changed = remove_ours(line);
	if (count) {
		rc = add_devices(command_line(root), plugs, count, error);
		changed = true;
	}
	*ret_xml = !rc && changed ? domain_xml_print(doc) : NULL;
	return rc;
}
