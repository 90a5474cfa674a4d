/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "daemon/libvirt/domain_xml.h"

#include <string.h>

void domain_xml_free(xmlDocPtr *doc)
{
	xmlFreeDoc(*doc);
}

bool domain_xml_is(xmlNodePtr node, const char *name)
{
	return node->type == XML_ELEMENT_NODE && !strcmp((const char *)node->name, name);
}

xmlNodePtr domain_xml_child(xmlNodePtr parent, const char *name)
{
	for (xmlNodePtr n = parent ? parent->children : NULL; n; n = n->next)
		if (domain_xml_is(n, name))
			return n;
	return NULL;
}

char *domain_xml_print(xmlDocPtr doc)
{
	xmlChar *text = NULL;
	char *copy;
	int n;

	xmlDocDumpMemory(doc, &text, &n);
	copy = text ? strdup((char *)text) : NULL;
	xmlFree(text);
	return copy;
}
