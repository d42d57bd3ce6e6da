/* The addresses of this host. */
#pragma once
#include "transport/base/place.h"
#include <stdbool.h>

/* port_params.interface as an address, without brackets. */
MUST_CHECK enum error address_choose(const char *interface, char out[ADDRESS_MAX]);
/* The name of the interface that this is, or that has this address; false: there is none. */
bool address_interface(const char *interface, char name[ADDRESS_MAX]);
