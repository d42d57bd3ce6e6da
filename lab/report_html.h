/* The report as one HTML file: no script, nothing from elsewhere. */
#pragma once
#include "lab/report.h"

MUST_CHECK enum error report_html(const struct report *r, struct markup *out);
