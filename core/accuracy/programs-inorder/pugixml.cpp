// pugixml at work: parses the file, queries it with XPath, edits it and writes it out.
#include "pugixml.hpp"
#include <cstdio>
#include <sstream>

int main(int argc, char **argv)
{
    pugi::xml_document document;
    document.load_file(argv[argc - 1]);
    auto deep = document.select_nodes("//*[count(ancestor::*) > 4]");
    auto attributed = document.select_nodes("//*[string-length(@*) > 6]/..");
    double sum = pugi::xpath_query("sum(//*/@*[number(.) = number(.)]) + count(//text()[contains(., 'e')])").evaluate_number(document);
    for (auto &found : deep)
        found.node().append_attribute("deep") = int(found.node().name()[0]);
    std::ostringstream out;
    document.save(out, "", pugi::format_raw);
    std::printf("%zu %zu %g %zu\n", deep.size(), attributed.size(), sum, out.str().size());
}
