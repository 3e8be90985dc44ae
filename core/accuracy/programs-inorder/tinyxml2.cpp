// TinyXML-2 at work: parses the file, counts what is in it, prints it.
#include "tinyxml2.h"
#include <cstdio>
#include <cstring>

static long walk(const tinyxml2::XMLElement *element)
{
    long sum = 1;
    for (auto *attribute = element->FirstAttribute(); attribute; attribute = attribute->Next())
        sum += long(std::strlen(attribute->Value()));
    for (auto *child = element->FirstChildElement(); child; child = child->NextSiblingElement())
        sum += walk(child);
    return sum;
}

int main(int argc, char **argv)
{
    tinyxml2::XMLDocument document;
    document.LoadFile(argv[argc - 1]);
    tinyxml2::XMLPrinter printer;
    document.Print(&printer);
    std::printf("%ld %zu\n", walk(document.RootElement()), size_t(printer.CStrSize()));
}
