# Benchmark of the collectives: build target bench_all_reduce.
add_executable(bench_all_reduce EXCLUDE_FROM_ALL bench/all_reduce.c)
target_link_libraries(bench_all_reduce PRIVATE engine_transport)
