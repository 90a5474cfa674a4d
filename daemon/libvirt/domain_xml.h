/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The readers and writers of a domain's XML share these. */
#ifndef IBVMIG_DAEMON_LIBVIRT_DOMAIN_XML_H
#define IBVMIG_DAEMON_LIBVIRT_DOMAIN_XML_H

#include <libxml/tree.h>
#include <stdbool.h>
#include <string.h>

#define AUTO_DOC __attribute__((cleanup(domain_xml_free)))

static inline void domain_xml_free(xmlDocPtr *doc)
{
	xmlFreeDoc(*doc);
}

/* True if node is an element of that name, of any namespace. */
static inline bool domain_xml_is(xmlNodePtr node, const char *name)
{
	return node->type == XML_ELEMENT_NODE && !strcmp((const char *)node->name, name);
}

/* The first element of that name in parent, or NULL, also without a parent. */
static inline xmlNodePtr domain_xml_child(xmlNodePtr parent, const char *name)
{
	for (xmlNodePtr n = parent ? parent->children : NULL; n; n = n->next)
		if (domain_xml_is(n, name))
			return n;
	return NULL;
}

/* The document as text, which the caller frees, or NULL. */
static inline char *domain_xml_print(xmlDocPtr doc)
{
	xmlChar *text = NULL;
	char *copy;
	int n;

	xmlDocDumpMemory(doc, &text, &n);
	copy = text ? strdup((char *)text) : NULL;
	xmlFree(text);
	return copy;
}

#endif
