/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/domain_saved.h"
#include "daemon/libvirt/domain.h"
#include "daemon/libvirt/domain_xml.h"

#include <libxml/parser.h>
#include <libxml/tree.h>
#include <stdio.h>
#include <string.h>

/* The <domain>, or NULL. */
static xmlNodePtr read_domain(const char *xml, xmlDocPtr *ret_doc)
{
	size_t bytes = strlen(xml);
	xmlNodePtr root;

	if (bytes > DOMAIN_XML_MAX)
		return NULL;
	*ret_doc = xmlReadMemory(xml, (int)bytes, "domain.xml", NULL,
				 XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING);
	root = *ret_doc ? xmlDocGetRootElement(*ret_doc) : NULL;
	return root && domain_xml_is(root, "domain") ? root : NULL;
}

static xmlNodePtr find_mark(xmlNodePtr domain)
{
	xmlNodePtr metadata = domain_xml_child(domain, "metadata");

	for (xmlNodePtr n = metadata ? metadata->children : NULL; n; n = n->next)
		if (domain_xml_is(n, "saved") && n->ns &&
		    !strcmp((char *)n->ns->href, DOMAIN_SAVED_XMLNS))
			return n;
	return NULL;
}

/* false: it is missing, or too long. */
static bool read_attribute(xmlNodePtr n, const char *name, char *text, size_t bytes)
{
	xmlChar *value = xmlGetNoNsProp(n, (const xmlChar *)name);
	int length = snprintf(text, bytes, "%s", value ? (char *)value : "");

	xmlFree(value);
	return length > 0 && (size_t)length < bytes;
}

bool domain_saved_parse(const char *xml, struct domain_saved *ret_saved)
{
	xmlDocPtr doc AUTO_DOC = NULL;
	xmlNodePtr domain = read_domain(xml, &doc), mark = domain ? find_mark(domain) : NULL;
	struct domain_saved s = {0};

	if (!mark || !read_attribute(mark, "id", s.id, sizeof s.id) ||
	    !read_attribute(mark, "host", s.host, sizeof s.host) ||
	    !read_attribute(mark, "url", s.url, sizeof s.url))
		return false;
	*ret_saved = s;
	return true;
}

char *domain_saved_mark(const char *xml, const struct domain_saved *saved)
{
	xmlDocPtr doc AUTO_DOC = NULL;
	xmlNodePtr domain = read_domain(xml, &doc), old = domain ? find_mark(domain) : NULL, mark,
		   metadata = domain_xml_child(domain, "metadata");

	if (!domain)
		return NULL;
	if (old) {
		xmlUnlinkNode(old);
		xmlFreeNode(old);
	}
	if (!metadata)
		metadata = xmlNewChild(domain, NULL, (const xmlChar *)"metadata", NULL);
	mark = xmlNewChild(metadata, NULL, (const xmlChar *)"saved", NULL);
	xmlSetNs(mark, xmlNewNs(mark, (const xmlChar *)DOMAIN_SAVED_XMLNS,
				(const xmlChar *)"ibvmig-saved"));
	xmlNewProp(mark, (const xmlChar *)"id", (const xmlChar *)saved->id);
	xmlNewProp(mark, (const xmlChar *)"host", (const xmlChar *)saved->host);
	xmlNewProp(mark, (const xmlChar *)"url", (const xmlChar *)saved->url);
	return domain_xml_print(doc);
}
