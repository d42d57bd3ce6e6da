/* A lab of a course: a folder with a question (README.md), what to run (lab.yaml and what that names), and what should
 * come out of it, as claims that a program can check.
 *
 *   title: The parameter server against the ring
 *   question: Who is faster, and from how many devices on?
 *   minutes: 1.5
 *   steps:
 *     - {name: race, compare: ps-vs-ring.yaml}
 *     - {name: alone, run: train.yaml --set devices=cpu:1, quick: --set train=20st}
 *   look: [The column "B against A"]
 *   claims:
 *     - {text: "The ring is faster.", check: "race.ddp.step_time < race.dp.step_time @ devices > cpu:2"}
 *
 * In a lab that asks for code, 'hand_in: [ring.c]' names what the reader writes, which is built before the first step, and
 * 'score: race.mine.step_best' a number by which hand-ins are sorted. */
#pragma once
#include "lab/experiment/experiment.h"

enum { LESSON_STEPS = 24, LESSON_CLAIMS = 32, LESSON_LOOKS = 16, LESSON_WORDS = 32, LESSON_FILES = 8 };
enum lesson_kind { LESSON_RUN, LESSON_COMPARE, LESSON_BENCH, LESSON_ENGINE, LESSON_READ, LESSON_KINDS };
struct lesson_step {
    const char *name;
    enum lesson_kind kind;
    const char *words[LESSON_WORDS + 1]; /* after 'engine run', 'engine compare'...; ended by NULL */
    int nwords;
    int exit;                            /* the code with which it should end */
    const char *under[LESSON_WORDS + 1]; /* "srun", "-n", "2": what starts it; ended by NULL */
    const char *into;                    /* the step whose run directory this one goes on in; its own name otherwise */
    struct experiment *experiment;       /* of a comparison that should end well; or NULL */
    struct node *place;
};
struct lesson_claim {
    const char *text, *check;
    bool quick; /* judged in quick form, too */
    bool timed; /* depends on how fast the machine is: its check is about time, or lab.yaml says so */
    const struct node *place;
};
struct lesson {
    const char *folder, *title, *question;
    double minutes;
    int64_t gpus, nodes; /* that it needs */
    const char *python;  /* the module, or NULL */
    int nsteps, nclaims, nlooks, nfiles;
    const char *hand_in[LESSON_FILES]; /* names of files in the folder, which the reader writes */
    struct lesson_step step[LESSON_STEPS];
    const char *look[LESSON_LOOKS];
    struct lesson_claim claim[LESSON_CLAIMS];
    struct lesson_claim score; /* text: the number's name; NULL: there is none */
    bool score_rises;          /* more of it is better */
    bool quick;
    struct pool *pool;
};
/* Reads FOLDER/lab.yaml, with the words for quick form where that is asked for, builds the sources among hand_in, and checks
 * experiments and claims: all that is wrong is in *report then, ERR_CONFIG; ERR_INPUT without a lab.yaml. lesson_close in
 * any case. */
MUST_CHECK enum error lesson_open(const char *folder, bool quick, struct lesson *out, char **report);
/* The same up to hand_in: neither steps nor claims are read, and nothing is built. */
MUST_CHECK enum error lesson_open_head(const char *folder, struct lesson *out, char **report);
void lesson_close(struct lesson *l);
/* A file of at most 'most' bytes. */
MUST_CHECK enum error lesson_copy_file(const char *from, size_t most, const char *to, struct pool *pool);
/* -1: there is none. */
int lesson_step_named(const struct lesson *l, const char *name, int n);
/* ERR_DEVICE: what it needs is not here. */
MUST_CHECK enum error lesson_needs(const struct lesson *l);

/* ---- those that come with the program ---- */
/* Title, question and minutes alone, as lab.yaml has them; texts live in the pool. */
struct lesson_about {
    const char *name, *title, *question; /* "00-hello" */
    double minutes;
    const struct node *hand_in; /* a list; NULL: the lab asks for no code */
};
enum { LESSONS_MOST = 64 };
MUST_CHECK enum error lesson_list(struct pool *pool, struct lesson_about *out, int *n);
/* The name of the i-th lab; NULL: there are fewer. The text is static until the next call. */
const char *lesson_name(int i);
/* Finds a lesson by number or name: "3", "03", "ps-vs-ring", "03-ps-vs-ring". ERR_INPUT, with what may have been meant. */
MUST_CHECK enum error lesson_find(const char *name, struct pool *pool, const char **full);
const char *lesson_readme(const char *full);
/* Writes its files into the folder, which is made; those that are there stay as they are. *kept: how many of these
 * say something else than the lab's. python: what the reader writes is in Python, in all of these files; ERR_INPUT where the
 * lab has it in C alone. */
MUST_CHECK enum error lesson_copy(const char *full, const char *folder, bool python, struct pool *pool, int *kept);
