/* Shapes and windows as initializers, for tables of cases. */
#pragma once

#define F(n)                                                                                                           \
    {                                                                                                                  \
        1, {                                                                                                           \
            n                                                                                                          \
        }                                                                                                              \
    }
#define ROWS(n, features)                                                                                              \
    {                                                                                                                  \
        2, {                                                                                                           \
            n, features                                                                                                \
        }                                                                                                              \
    }
#define CHW(c, h, w)                                                                                                   \
    {                                                                                                                  \
        3, {                                                                                                           \
            c, h, w                                                                                                    \
        }                                                                                                              \
    }
#define SQUARE(k, s, p)                                                                                                \
    {                                                                                                                  \
        {k, k}, {s, s}, {                                                                                              \
            p, p                                                                                                       \
        }                                                                                                              \
    }
