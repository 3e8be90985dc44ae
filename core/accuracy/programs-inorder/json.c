/* Runs cJSON: parses the file, walks through it and prints it, three times. */
#include "cJSON.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double walk(const cJSON *item)
{
    double sum = cJSON_IsNumber(item) ? item->valuedouble : cJSON_IsString(item) ? (double)strlen(item->valuestring) : 1;
    for (const cJSON *child = item->child; child; child = child->next)
        sum += walk(child);
    return sum;
}

int main(int argc, char **argv)
{
    FILE *file = fopen(argv[argc - 1], "rb");
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file), printed = 0;
    double sum = 0;
    rewind(file);
    char *text = calloc(size + 1, 1);
    size = fread(text, 1, size, file);
    cJSON *document = cJSON_Parse(text);
    for (const cJSON *item = document->child; item; item = item->next) {
        char *out = cJSON_PrintUnformatted(item);
        printed += strlen(out);
        cJSON *again = cJSON_Parse(out);
        sum += walk(again) + cJSON_Compare(item, again, 1);
        cJSON_Delete(again);
        free(out);
    }
    printf("%zu %g\n", printed, sum);
}
