/* The phases of a step, into which reports divide its time, and their names in each kind of output. */
#pragma once

/*  phase     in metrics, in summary.json, in words, in a trace */
#define STEP_PHASES(X)                                                                                                 \
    X(LOAD, "load", "load", "load", "load")                                                                            \
    X(FORWARD, "forward", "forward", "forward", "forward")                                                             \
    X(BACKWARD, "backward", "backward", "backward", "backward")                                                        \
    X(COMM, "comm", "comm_exposed", "communication, exposed", "wait for communication")                                \
    X(UPDATE, "update", "update", "update", "update")
enum phase {
#define X(name, metric, key, words, traced) PHASE_##name,
    STEP_PHASES(X)
#undef X
        PHASES
};
extern const struct phase_names { const char *metric, *key, *words, *traced; } phase_names[PHASES];
