"""What `make test` leaves to `make broad`: tests that take long, and say again on another runtime, recorder, program or
number of ranks what a test of `make test` says on one, or in a real job what other tests say of its parts. By file and
name; with brackets a single case, else all of them; with an asterisk the cases of all tests of the file that have this
value.
"""

from __future__ import annotations

from collections.abc import Iterable

BROAD = {
    "test_compiled_program.py": [
        "test_dynamo_compiles_nothing_of_prismdbg[native]",
        "test_what_was_compiled_for_the_processor_is_compiled_again_in_a_container",
    ],
    "test_lone_stores.py": [
        "test_a_count_without_the_others_is_a_divergence_with_its_cause",
        "test_what_the_rank_has_set_is_there",
    ],
    "test_gpu_state.py": [
        "test_who_takes_it_is_killed_and_the_job_goes_on[2]",
        "test_who_takes_it_is_killed_and_the_job_goes_on[15]",
    ],
    # Each runtime and each origin is met without these, and a plain process.
    "test_runtime_saves.py": ["*docker-image", "*local-start"],
    "test_runtime_conformance.py": ["*docker-image", "*local-start"],
    "test_runtime_hostile.py": ["*docker-image", "*local-start"],
    "test_runtime_limits.py": ["*docker-image", "*local-start"],
    "test_hostile_capsule.py": ["*docker-image", "*local-start"],
    # What the runtimes do about links is in test_runtime_hostile.py.
    "test_chain_links.py": [
        "test_the_host_neither_shows_nor_changes_what_a_link_leads_to[plain]",
        "test_the_host_neither_shows_nor_changes_what_a_link_leads_to[docker]",
    ],
    # Each limit is in test_runtime_limits.py; how it is told is the same for all.
    "test_chain_limits.py": [
        "test_a_program_that_takes_more_is_ended[pids]",
        "test_a_program_that_takes_more_is_ended[shm]",
    ],
    "test_screen_in_chromium.py": [
        "test_its_panes_are_filled_when_it_appears[False-words0]",
    ],
    "test_failed_collectives.py": [
        "test_what_a_lost_peer_raised_is_raised_again[False]",
        "test_what_it_raised_is_in_the_capsule_without_secrets_and_still_the_same[python]",
    ],
    "test_newer_operator.py": [
        "test_the_job_is_as_bare_and_the_call_is_noted[python]",
    ],
    "test_two_nodes.py": [
        "test_what_a_killed_supervisor_cannot_capture_the_other_one_does[False]",
        "test_a_node_that_is_lost_whole_is_told_as_lost",
        "test_telemetry_of_each_node_says_why_its_rank_was_late[none]",
    ],
    "test_replay_tolerance.py": [
        "test_values_that_are_close_are_within_the_tolerance_and_never_identical[python]",
    ],
    "test_state_kept_for_incidents.py": [
        "test_two_nodes_take_longer_to_agree_and_it_is_still_there[local]",
        "test_two_nodes_take_longer_to_agree_and_it_is_still_there[shared]",
    ],
    "test_gathered_state.py": [
        "test_a_state_that_is_gathered_is_asked_of_no_rank[fsdp1-native]",
        "test_a_state_that_is_gathered_is_asked_of_no_rank[frozen-native]",
        "test_a_state_that_is_gathered_is_asked_of_no_rank[loader-python]",
        "test_a_state_that_is_gathered_is_asked_of_no_rank[fsdp1-python]",
        "test_a_state_that_is_gathered_is_asked_of_no_rank[handled-python]",
    ],
    "test_chain_capture.py": [
        "test_the_job_stands_still_only_while_the_image_is_taken[python]",
        "test_the_capsule_holds_the_window_that_was_asked_for[python]",
        "test_the_rank_runs_again_alone[python-local]",
        "test_the_rank_runs_again_alone[python-docker]",
        "test_the_rank_runs_again_alone[native-local]",
        "test_the_job_goes_on_to_the_same_end[python]",
    ],
    # secrets: test_chain_secrets.py
    "test_chain_container.py": [
        "test_docker_inspect_shows_no_network_and_only_what_criu_needs[start]",
        "test_the_rank_has_no_capability_and_no_interface[image-local]",
        "test_the_rank_has_no_capability_and_no_interface[image-docker]",
        "test_the_rank_has_no_capability_and_no_interface[start-docker]",
        "test_what_the_rank_writes_is_thrown_away[image-docker]",
        "test_what_the_rank_writes_is_thrown_away[start-local]",
        "test_what_the_rank_writes_is_thrown_away[start-docker]",
        "test_nothing_is_left[image-quit-local]",
        "test_nothing_is_left[image-quit-docker]",
        "test_nothing_is_left[image-kill -9-docker]",
        "test_nothing_is_left[start-quit-local]",
        "test_nothing_is_left[start-kill -9-local]",
        "test_nothing_is_left[start-kill -9-docker]",
        "test_a_replay_that_is_terminated_cleans_up",
        "test_a_secret_is_not_in_the_capsule_and_reading_it_says_so",
    ],
    "test_chain_divergence.py": [
        "test_the_story_as_json",
        "test_a_program_that_ends_early_diverges",
        "test_until_a_moment[nan_with_checkpoints]",
    ],
    "test_chain_files.py": [
        "test_the_rank_reads_what_it_read_before_it_wrote_over_it[native-0-docker]",
        "test_the_rank_reads_what_it_read_before_it_wrote_over_it[native-1-local]",
        "test_the_rank_reads_what_it_read_before_it_wrote_over_it[python-0-local]",
        "test_the_rank_reads_what_it_read_before_it_wrote_over_it[python-0-docker]",
        "test_the_rank_reads_what_it_read_before_it_wrote_over_it[python-1-local]",
        "test_the_rank_reads_what_it_read_before_it_wrote_over_it[python-1-docker]",
        "test_the_rank_reads_what_it_read_before_it_wrote_over_it[native-1-docker]",
        "test_the_rank_finds_what_it_found[start-local]",
        "test_the_rank_finds_what_it_found[image-docker]",
        "test_a_program_that_chooses_among_files_sees_all_of_them[docker]",
        "test_a_rank_that_holds_files_of_the_kernel_is_replayed",
        "test_a_rank_that_holds_what_no_replay_opens_is_not_captured",
    ],
    # test_verdict.py and test_script_report.py tell these ends apart, without a rank.
    "test_chain_incidents.py": [
        "test_another_end_is_not_the_recorded_death[never]",
        "test_another_end_is_not_the_recorded_death[signal]",
        "test_another_end_is_not_the_recorded_death[thread]",
        "test_an_edited_program_that_dies[0-7-inconclusive]",
        "test_an_edited_program_that_dies[SIGSEGV-1-another failure]",
        "test_a_death_of_which_the_capsule_does_not_say_how",
        "test_the_rank_is_replayed_to_its_nan[image-local]",
        "test_a_hang_without_a_past_is_inconclusive_and_it_is_said[native-docker]",
        "test_the_rank_is_replayed_to_its_nan[start-docker]",
        "test_both_sides_of_a_hang_are_captured[python]",
        "test_the_line_where_the_culprit_stands_is_told_everywhere[python]",
        "test_the_culprit_is_shown_where_it_stands_and_waited_for_only_when_told[python]",
        "test_the_peers_of_a_hang_are_told_apart[python]",
        "test_a_hang_without_a_past_is_inconclusive_and_it_is_said[python-local]",
        "test_a_hang_without_a_past_is_inconclusive_and_it_is_said[python-docker]",
        "test_the_rank_that_never_came_can_be_looked_at[python]",
    ],
    "test_chain_programs.py": [
        "test_it_runs_again_alone[sharded and tensor parallel in bfloat16-docker]",
        "test_it_runs_again_alone[with processes that load its data-docker]",
        "test_it_runs_again_alone[one process without a launcher-docker]",
        "test_it_runs_again_alone[works in flight and several threads-docker]",
        "test_it_runs_again_alone[with processes that load its data-local]",
        "test_it_runs_again_alone[sharded and tensor parallel in bfloat16-local]",
        "test_it_runs_again_alone[one process without a launcher-local]",
    ],
    "test_chain_supervisor.py": [
        "test_a_job_outlives_its_supervisor_and_can_still_be_captured[native]",
    ],
    "test_emulate.py": [
        "test_every_kind_of_rendezvous_is_virtual",
        "test_the_tour_of_torch_distributed_comes_to_its_end",
        "test_the_workers_that_a_rank_starts_are_no_ranks[fork]",
        "test_the_workers_that_a_rank_starts_are_no_ranks[forkserver]",
        "test_the_example_has_batches_for_a_world_that_is_larger_than_its_corpus",
        "test_policies_decide_what_is_received[echo--51.2]",
        "test_values_beyond_the_budget_are_noise_like_them_and_that_is_said",
        "test_an_earlier_run_says_what_peers_of_another_world_send",
    ],
    # the command is tried with two ranks in make test; the other measures, by unit tests
    "test_calibrate.py": [
        "test_a_cluster_file_of_this_machine",
        "test_groups_that_share_links_and_ranks_that_share_cpus",
        "test_two_nodes_on_this_machine",
        "test_no_gpu",
        "test_a_job_that_does_not_end",
        "test_an_interrupted_one_leaves_nothing[15-143]",
    ],
    "test_emulate_ends.py": [
        "test_ranks_that_would_hang_together_do_not_end_with_code_0[missing]",
        "test_ranks_that_would_hang_together_do_not_end_with_code_0[tail]",
        "test_a_mesh_that_is_not_the_programs_own_is_refused_with_the_one_that_fits[dp=4,tp=2-0]",
        "test_a_disk_without_room_leaves_no_folder",
        "test_an_interrupted_one_leaves_nothing[15-143-emulate]",
        "test_an_interrupted_one_leaves_nothing[2-130-plan]",
        "test_what_a_plan_tried_is_gone_where_there_is_nothing_to_see",
        "test_ranks_that_are_needed_for_their_values_are_counted_before_they_start",
    ],
    # make test has the rank that receives all that the real one did
    "test_emulate_memory.py": [
        "test_tokens_arrive_as_an_earlier_run_recorded_it",
        "test_balanced_tokens_come_in_equal_shares",
        "test_without_a_donor_the_peers_that_send_the_counts_run_in_turn",
        "test_counts_that_are_synthesized_are_said_to_shape_what_follows",
        "test_a_donor_of_another_size_is_refused_with_both_sizes",
    ],
    "test_emulate_together.py": [
        "test_along_two_axes_at_once_values_are_those_of_the_whole_job",
        "test_with_what_the_replicas_really_sent_all_values_are_those_of_the_whole_job",
        "test_in_a_group_with_virtual_members_the_real_ones_get_what_they_get_in_the_whole_job",
        "test_what_only_another_rank_knows_comes_from_it",
        "test_a_partner_that_is_lost_is_named[raises]",
        "test_a_partner_that_is_lost_is_named[leaves]",
        "test_a_partner_that_is_lost_is_named[receives from any]",
    ],
    "test_emulated_rank_again.py": [
        "test_another_session_says_the_same",
    ],
    "test_emulation_example.py": [
        "test_what_cannot_be_put_into_classes_is_named_with_the_fix",
    ],
    "test_paced_on_device.py": [
        "test_a_step_takes_the_longer_of_both_or_the_sum[serial]",
        "test_a_step_takes_the_longer_of_both_or_the_sum[exchange]",
    ],
    "test_sample.py": [
        "test_a_rank_under_ddp_or_fsdp_is_sampled[ddp-mm]",
        "test_a_program_that_fails_is_not_sought_in_a_folder_that_is_gone",
    ],
    "test_sweep.py": [
        "test_ranks_of_a_pipeline_can_be_replayed",
        "test_real_jobs_are_compared",
    ],
    # what is searched, and its regret, are pure (test_sweep_search.py)
    "test_sweep_searched.py": [
        "test_a_search_runs_the_best_and_its_regret_holds_against_the_sweep_of_all",
    ],
    # test_state_as_nobody.py records, captures and replays as one that may do nothing
    "test_state_other_user.py": [
        "test_another_user_without_criu_replays_what_root_recorded",
    ],
    # make test has a loader with workers in test_state_origin.py
    "test_state_programs.py": [
        "test_it_goes_on_from_a_later_snapshot[torchdata]",
    ],
    "test_parameters_at_end.py": [
        "test_a_difference_after_the_last_collective_is_found[kernels1]",
        "test_an_optimizer_that_holds_none_at_the_end_has_none_compared[kernels0]",
    ],
    "test_unwritten_memory.py": [
        "test_unwritten_memory_is_the_same_in_a_replay_where_it_is_filled[as it is]",
    ],
    "test_script.py": [
        "test_from_a_process_image[docker]",
        "test_a_rank_that_waits_is_broken_off",
        "test_other_peers",
    ],
    # git bisect itself is tried in test_source_fix.py
    "test_bisect_of_a_hang.py": [
        "test_git_bisect_finds_the_commit_that_hangs",
        "test_a_rank_that_never_joined_is_judged_by_what_leads_it_there",
    ],
    # the verdict is pure (test_verdict.py, test_compare.py)
    "test_killed_asleep.py": [
        "test_its_replay_ends_as_inconclusive_and_says_what_was_identical",
    ],
    # an edited program that leaves the record is tried in test_source_fix.py
    "test_source_without_a_call.py": [
        "test_a_call_left_out_before_ddp_orders_its_buckets_ends_no_process",
    ],
    "test_working_directory.py": [
        "test_it_is_replayed_from_where_it_was_started[kept]",
    ],
    "test_device_calls.py": [
        "test_calls_that_are_issued_together_are_complete_when_all_are_issued[python]",
        "test_calls_that_a_block_takes_out_are_complete_at_its_end[python]",
        "test_a_block_without_a_device_issues_nothing_together[python]",
        "test_calls_of_nested_groups_are_complete_when_the_outermost_ends[python]",
        "test_a_block_that_an_exception_left_has_no_call_of_a_later_one[python]",
        "test_a_block_that_an_exception_left_does_not_end_with_the_one_around_it[python]",
        "test_calls_that_cannot_be_issued_together_have_failed[python]",
    ],
    "test_bench_programs.py": [
        "test_the_recorder_is_put_in_and_taken_out_between_steps",
        "test_a_kernel_is_measured_in_every_mode",
    ],
    "test_dumped_job.py": [
        "test_of_the_rank_that_never_came[exported]",
        "test_of_the_rank_that_calls_something_else[its own dumps]",
        "test_a_job_without_a_fault",
        "test_of_a_job_without_a_fault",
        "test_a_graph_is_built_of_what_came_before_the_hang[options1]",
    ],
    "test_profiled_job.py": [
        "test_a_graph_is_built_of_the_last_step[options1]",
    ],
    "test_emulated_as_real.py": [
        "test_the_log_is_that_of_the_real_rank[ddp-4]",
        "test_the_log_is_that_of_the_real_rank[fsdp-tp-8]",
        "test_the_log_is_that_of_the_real_rank[pipeline-4]",
        "test_the_log_is_that_of_the_real_rank[moe-4]",
        "test_two_ranks_stand_for_all[fsdp-tp-8]",
        "test_two_real_runs_have_the_same_peaks",
        "test_the_programs_own_peak_is_that_of_the_real_rank[ddp-4]",
        "test_the_programs_own_peak_is_that_of_the_real_rank[fsdp-tp-8]",
        "test_the_programs_own_peak_is_that_of_the_real_rank[pipeline-4]",
        "test_the_programs_own_peak_is_that_of_the_real_rank[moe-4]",
        "test_what_gloo_stages_for_a_model_is_as_the_emulated_ranks_calls_say[fsdp-tp-8]",
        "test_under_a_cap_the_emulated_rank_fails_where_the_real_one_does",
    ],
    "test_example_replay.py": [
        "test_recorded_it_trains_as_before",
        "test_a_rank_replays_alone[ddp-0]",
        "test_a_rank_replays_alone[ddp with loader workers-1]",
        "test_a_rank_replays_alone[fsdp2 x tp in bf16-0]",
        "test_a_rank_replays_alone[fsdp2 x tp in bf16-3]",
        "test_a_skipped_collective_shows_at_the_next_one",
        "test_a_collective_too_many_is_past_the_end",
        "test_another_number_of_threads_shows_in_what_is_sent",
    ],
    # Two of its checks, on the CPU; test_state_origin.py and test_example_replay.py say the same of smaller jobs.
    "test_gpu_rehearsal.py": [
        "test_the_checks_of_a_gpu_are_rehearsed_on_the_cpu",
    ],
    # Other tests record what these run bare.
    "test_examples.py": [
        "test_nan_comes_with_the_corrupt_record_and_stays",
        "test_rank_1_raises_in_its_dataset",
        "test_the_corrupt_record_can_be_placed",
        "test_parts_of_one_size_do_not_hang",
        "test_what_runs_out_of_memory_under_a_cap_has_enough_without",
        "test_what_is_archived_is_read_as_before",
        "test_ddp_learns_goes_on_from_its_checkpoint_and_its_ranks_agree",
        "test_fsdp_tp_learns_in_bfloat16",
        "test_pipeline_stages_with_fsdp_and_tensor_parallelism_learn",
    ],
    # test_faults.py fills disks, stops servers and removes files, too; test_chain_supervisor.py kills supervisors.
    "test_fail_open.py": [
        "test_no_room_for_a_log",
        "test_a_log_that_is_cut_under_the_job[5000-options0]",
        "test_the_agents_socket_goes_away[options0]",
        "test_the_run_folder_is_removed_while_the_job_runs",
        "test_the_supervisor_is_killed",
        "test_on_a_file_system_with_a_server_nothing_is_lost",
        "test_a_torch_whose_operators_are_others[False]",
        "test_the_disk_is_full_in_the_middle[0-False]",
        "test_the_disk_is_full_in_the_middle[-1-True]",
        "test_somebody_else_fills_the_disk_under_a_mapped_log[options1]",
        "test_a_run_folder_that_takes_no_log[True]",
        "test_a_log_that_is_cut_under_the_job[0-options1]",
        "test_a_log_that_is_cut_under_the_job[64-options0]",
        "test_a_log_that_is_cut_under_the_job[5000-options1]",
        "test_the_supervisor_of_a_run_that_no_longer_answers[options1]",
    ],
    "test_paced.py": [
        "test_an_iteration_takes_what_was_simulated_to_the_nanosecond[ddp]",
        "test_it_says_so_and_nothing_of_the_machine_s_processors[ddp]",
        "test_a_graph_of_it_simulates_the_same[ddp]",
        "test_again_it_is_the_same",
        "test_nothing_goes_on_before_its_peers_are_there",
        "test_it_computes_what_it_did_unpaced",
        "test_its_memory_is_the_same",
        "test_the_log_says_when_the_reducer_waited",
        "test_ranks_compute_as_slowly_as_on_shared_processors",
        "test_a_slice_of_another_program_is_refused",
        "test_steps_of_one_kind_are_paced_also_where_others_lie_between",
        "test_too_few_ranks_for_a_graph",
    ],
    "test_seen_from_outside.py": [
        "test_the_line_debugger_outlives_its_rank[docker]",
        "test_back_to_where_the_nan_was_born_by_lines[docker]",
        "test_back_to_where_the_nan_was_born_by_keys[docker]",
        "test_back_to_where_the_nan_was_born_by_script[local]",
        "test_back_to_where_the_nan_was_born_by_script[docker]",
    ],
    # git bisect meets a commit that cannot run, and those that are bad
    "test_source_fix.py": [
        "test_code_that_cannot_run_is_skipped",
        "test_the_program_as_it_was",
        "test_a_process_image_is_refused",
        "test_a_fix_with_expectations_of_its_own",
        "test_a_fix_with_an_expectation_that_does_not_hold",
        "test_a_program_that_leaves_the_record_early_rests_on_assumptions",
    ],
    "test_state_debugged.py": [
        "test_without_criu_it_goes_back_by_starting_again",
        "test_a_script_asks_for_values_of_the_restored_program",
        "test_a_changed_program_runs_from_the_state",
        "test_what_cannot_take_the_state_is_skipped_by_a_bisection[other parameters]",
        "test_what_cannot_take_the_state_is_skipped_by_a_bisection[no restore point]",
        "test_it_goes_back_by_checkpoints_of_the_replay[docker]",
    ],
    "test_state_origin.py": [
        "test_messages_between_ranks_are_counted_on_from_the_snapshot[python]",
        "test_the_beginning_has_its_configuration_however_much_it_receives[python]",
        "test_the_program_is_the_same_recorded_and_bare",
        "test_a_rank_goes_on_from_its_snapshot[0]",
        "test_a_larger_window_begins_at_the_older_snapshot",
        "test_a_state_that_was_made_to_mislead_ends_the_replay[name]",
        "test_a_state_that_was_made_to_mislead_ends_the_replay[registration]",
        "test_sharded_parameters_and_everything_else_that_a_step_depends_on[2-how1]",
    ],
    "test_time_travel.py": [
        "test_a_killed_rank_is_brought_back[docker]",
        "test_a_bucket_of_ddp_that_is_older_than_the_capsule_is_known[docker]",
        "test_the_same_places_are_the_same_bits[docker]",
    ],
    "test_travel.py": [
        "test_what_comes_after_an_image_is_always_the_same[docker]",
        "test_an_image_outlives_the_rank_and_its_place[local]",
        "test_images_of_a_program_that_was_started[local]",
        "test_without_images_the_way_back_is_the_start[plain]",
    ],
    "test_chain_two_threads.py": [
        "test_a_thread_on_its_way_into_a_collective[python]",
    ],
    "test_debug_command.py": [
        "test_a_restored_rank[local]",
    ],
    "test_unseeded.py": [
        "test_what_seeds_nothing_runs_again_as_it_ran[unseeded_shards-docker]",
        "test_what_seeds_nothing_runs_again_as_it_ran[unseeded_parallel-docker]",
        "test_what_seeds_nothing_runs_again_as_it_ran[unseeded_blocks-docker]",
        "test_what_seeds_nothing_runs_again_as_it_ran[unseeded_shards-local]",
        "test_what_seeds_nothing_runs_again_as_it_ran[unseeded_blocks-local]",
    ],
    # disk injects the faults of files, too; test_kills.py and test_chain_supervisor.py kill supervisors.
    "test_faults.py": [
        "test_a_job_with_faults_ends_as_bare[supervisor]",
        "test_a_job_with_faults_ends_as_bare[restart]",
        "test_a_job_that_is_started_again_more_often_than_bare_is_seen",
        "test_a_job_with_faults_ends_as_bare[files]",
        "test_a_job_with_faults_ends_as_bare[agent]",
        "test_a_job_with_faults_ends_as_bare[clock]",
        "test_a_bare_job_survives_every_limit",
        "test_a_job_with_faults_ends_as_bare[restart-killed]",
    ],
    "test_kills.py": [
        "test_killed_at_random_moments[others]",
        "test_killed_in_a_container_at_random_moments",
    ],
    "test_record_starts.py": [
        "test_a_program_that_ends_its_world_and_begins_another[False]",
        "test_a_scaler_that_skips_a_step_counts_it",
        "test_the_log_is_readable_whatever_ends_the_process[killed-137-None-None]",
        "test_ranks_forked_by_a_launcher_that_imported_torch[options0]",
        "test_no_thread_of_the_recorder_takes_a_signal_of_the_program[options1]",
        "test_the_log_is_readable_whatever_ends_the_process[return-0-None-exit]",
        "test_the_log_is_readable_whatever_ends_the_process[out of memory-1-oom-exit]",
        "test_the_log_of_the_python_kernels_is_readable[exception-1-exception-exit]",
        "test_both_launchers[python -m torch.distributed.run]",
        "test_the_log_is_readable_whatever_ends_the_process[terminated-143-None-None]",
        "test_the_log_is_readable_whatever_ends_the_process[abort-134-None-None]",
    ],
    "test_same_bits.py": [
        "test_every_way_to_a_place_leads_to_the_same_bits[no images]",
        "test_every_way_to_a_place_leads_to_the_same_bits[docker]",
    ],
    "test_tour.py": [
        "test_a_rank_replays_alone[native-1]",
        "test_a_rank_replays_alone[python-0]",
        "test_a_rank_replays_alone[python-2]",
        "test_a_rank_replays_alone[python-3]",
    ],
    # all of what `make test` tries a part of: longer texts, each damage
    "test_linear_search.py": [
        "test_a_rule_takes_a_time_in_proportion_to_a_longer_text",
    ],
    "test_hostile_rank.py": [
        "test_a_replay_of_a_rank_with_any_damage_ends_with_a_verdict_or_an_error",
        "test_a_debugger_takes_events_with_any_damage",
        "test_a_debugger_takes_answers_with_any_damage",
    ],
    "test_screen_in_tmux.py": [
        "test_a_rank_goes_back_dies_and_comes_back_by_keys[docker]",
    ],
    "test_in_a_browser.py": [
        "test_a_replayed_rank_ends_with_its_page_its_screen_and_its_server",
    ],
    "test_standard_streams.py": [
        "test_a_replay_ends_with_its_streams[closed input]",
    ],
    "test_any_source_timeout.py": [
        "test_its_own_timeout_holds_in_the_job_and_in_the_replay[python]",
    ],
    "test_backward_elsewhere.py": [
        "test_the_line_that_began_the_pass[python]",
    ],
    "test_memory_of_the_example.py": [
        "test_the_peak_is_the_profilers_and_has_an_operator_and_a_line[docker]",
    ],
    "test_memory_command.py": [
        "test_a_replay_allocates_as_the_recorded_rank_did[docker]",
    ],
    "test_user_code.py": [
        "test_the_replayed_rank_has_the_same_rule[image-False-16]",
        "test_the_replayed_rank_has_the_same_rule[start-False-16]",
        "test_the_replayed_rank_has_the_same_rule[image-True-5]",
    ],
    "test_scaled_steps.py": [
        "test_an_overflow_of_another_optimizer_of_an_edited_program_is_no_failure[in_turn]",
        "test_a_skipped_step_is_a_step_and_named_as_skipped[wrapped]",
        "test_a_nan_that_lasts_in_a_second_optimizer_that_is_due_in_every_second_step_is_an_incident",
        "test_a_skipped_step_is_a_step_and_named_as_skipped[fused]",
        "test_an_overflow_of_a_second_optimizer_is_no_incident[in_turn-4]",
    ],
    "test_own_excepthook.py": [
        "test_what_it_died_of_is_noted[exits]",
    ],
    # test_shared_job.py decides by the same variables, without a job.
    "test_mpi_launchers.py": [
        "test_the_variables_of_open_mpi_make_one_job_within_slurm_too",
    ],
    "test_ranks_in_namespaces.py": [
        "test_a_rank_in_namespaces_of_its_own_is_watched_and_not_promised[PID]",
        "test_a_rank_in_namespaces_of_its_own_is_watched_and_not_promised[mount]",
        "test_a_rank_in_namespaces_of_its_own_is_watched_and_not_promised[host name (UTS)]",
    ],
    "test_shared_folder_of_two_nodes.py": [
        "test_a_job_is_as_fast_as_before_while_the_folder_of_two_nodes_is_slow",
        "test_a_full_folder_of_two_nodes_gets_what_it_lacks_when_it_has_room",
    ],
    "test_logs_on_nodes.py": [
        "test_a_rank_with_its_log_on_a_node_is_captured_from_anywhere",
    ],
    "test_checkpoint_of_the_unresponsive.py": [
        "test_a_hang_is_seen_in_time_though_a_checkpoint_is_due[sleep]",
    ],
    "test_chain_interrupted.py": [
        "test_an_interrupted_capture_harms_nobody[others]",
    ],
    # test_diagnosis_hang.py tells it by the same records, without a job.
    "test_one_hang.py": [
        "test_a_message_that_is_left_out_is_told_as_a_wait_for_each_other",
    ],
    # test_two_nodes.py records such a job, test_kubernetes_manifest.py reads the manifest.
    "test_kubernetes_pods.py": [
        "test_two_pods_record_into_one_folder_and_the_nan_is_captured",
    ],
    "test_chain_concurrent.py": [
        "test_the_refused_capture_leaves_the_other_one_alone",
    ],
    "test_linked_folder.py": [
        "test_what_lies_beside_it_is_there[folder-local]",
        "test_what_lies_beside_it_is_there[file-docker]",
    ],
    "test_other_programs.py": [
        "test_it_gets_what_the_recorded_rank_got[start-local]",
        "test_it_gets_what_the_recorded_rank_got[state-docker]",
    ],
    "test_native_code.py": [
        "test_a_replay_has_it_as_the_job_had_it[built before-docker]",
        "test_a_replay_has_it_as_the_job_had_it[built by the job-local]",
    ],
    "test_times.py": [
        "test_it_is_told_the_times_of_the_recorded_rank[start-local]",
    ],
    "test_files_of_workers.py": [
        "test_a_replay_has_them[docker]",
    ],
    "test_spawned_ranks.py": [
        "test_it_ends_as_it_ended[docker]",
    ],
}


def is_broad(file: str, name: str) -> bool:
    """`name`: of a test, with the case in brackets."""
    return any(_names(entry, name) for entry in BROAD.get(file, ()))


def _names(entry: str, name: str) -> bool:
    test, _, case = name.partition("[")
    return entry[1:] in case if entry.startswith("*") else entry in (name, test)


def unknown(collected: Iterable[tuple[str, str]]) -> list[str]:
    """Entries that no test of the collected files has: (file, name) of each."""
    names: dict[str, set[str]] = {}
    for file, name in collected:
        names.setdefault(file, set()).add(name)
    return [
        f"{file}::{entry}"
        for file, entries in BROAD.items()
        if file in names
        for entry in entries
        if not any(_names(entry, name) for name in names[file])
    ]
