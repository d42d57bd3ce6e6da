# Benchmarks: built with everything else, never run as tests.
add_executable(bench_step bench/step.c)
target_link_libraries(bench_step PRIVATE engine_model)
