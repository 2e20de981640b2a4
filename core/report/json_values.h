// SPDX-License-Identifier: Apache-2.0
// Values as reports write them. Private to report/.
#ifndef LS_REPORT_JSON_VALUES_H
#define LS_REPORT_JSON_VALUES_H

#include <jansson.h>
#include <stdint.h>

json_t *ls_report_number_json(double value); // NaN and infinity are null
json_t *ls_report_count_json(uint64_t value);
json_t *ls_report_text_json(
    const char *value); // NULL is null; what is no UTF-8 gets question marks

#endif
