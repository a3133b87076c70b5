"""What `make test` leaves to `make broad`: tests that take long, and say again on another runtime, recorder, program or
number of ranks what a test of `make test` says on one, or in a real job what another test says of its parts. By file
and name; with brackets a single case, else all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

BROAD = {
    "test_compiled_program.py": [
        "test_dynamo_compiles_nothing_of_prismdbg[native]",
    ],
    "test_lone_stores.py": [
        "test_what_the_rank_has_set_is_there",
    ],
    "test_gpu_state.py": [
        "test_who_takes_it_is_killed_and_the_job_goes_on[15]",
    ],
    "test_runtime_saves.py": [
        "test_its_place_can_be_made_anew[docker-start]",
        "test_it_stands_where_it_was_saved_as_often_as_one_likes[docker-start]",
        "test_it_stands_where_it_was_saved_as_often_as_one_likes[local-image]",
    ],
    "test_failed_collectives.py": [
        "test_what_it_raised_is_in_the_capsule_without_secrets_and_still_the_same[python]",
    ],
    "test_newer_operator.py": [
        "test_the_job_is_as_bare_and_the_call_is_noted[python]",
    ],
    "test_two_nodes.py": [
        "test_what_a_killed_supervisor_cannot_capture_the_other_one_does[False]",
        "test_a_node_that_is_lost_whole_is_named_by_the_other",
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
    "test_chain_container.py": [
        "test_nothing_is_left[image-quit-docker]",
        "test_nothing_is_left[image-kill -9-docker]",
        "test_nothing_is_left[start-quit-local]",
        "test_nothing_is_left[start-kill -9-local]",
        "test_what_the_rank_writes_is_thrown_away[image-docker]",
        "test_what_the_rank_writes_is_thrown_away[start-local]",
    ],
    "test_chain_divergence.py": [
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
        "test_the_rank_finds_what_it_found[start-docker]",
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
    ],
    "test_chain_supervisor.py": [
        "test_a_job_outlives_its_supervisor_and_can_still_be_captured[native]",
    ],
    "test_emulate.py": [
        "test_the_workers_that_a_rank_starts_are_no_ranks[forkserver]",
    ],
    "test_emulated_as_real.py": [
        "test_the_log_is_that_of_the_real_rank[ddp-4-ranks0]",
        "test_the_log_is_that_of_the_real_rank[fsdp-tp-8-ranks1]",
        "test_the_log_is_that_of_the_real_rank[pipeline-4-ranks2]",
        "test_two_real_runs_have_the_same_peaks",
        "test_the_programs_own_peak_is_that_of_the_real_rank[fsdp-tp-8-ranks1]",
        "test_the_programs_own_peak_is_that_of_the_real_rank[pipeline-4-ranks2]",
        "test_under_a_cap_the_emulated_rank_fails_where_the_real_one_does[pipeline-4]",
    ],
    "test_example_replay.py": [
        "test_recorded_it_trains_as_before[ddp]",
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
        "test_an_iteration_takes_what_was_simulated_to_the_nanosecond[pipeline]",
        "test_it_says_so_and_nothing_of_the_machine_s_processors[pipeline]",
        "test_a_graph_of_it_simulates_the_same[pipeline]",
    ],
    "test_seen_from_outside.py": [
        "test_the_line_debugger_outlives_its_rank[docker]",
        "test_back_to_where_the_nan_was_born_by_lines[docker]",
        "test_back_to_where_the_nan_was_born_by_keys[docker]",
        "test_back_to_where_the_nan_was_born_by_script[local]",
        "test_back_to_where_the_nan_was_born_by_script[docker]",
    ],
    "test_source_fix.py": [
        "test_code_that_cannot_run_is_skipped[train.py-def\\n]",
        "test_code_that_cannot_run_is_skipped[train.py-text2]",
    ],
    "test_state_debugged.py": [
        "test_it_goes_back_by_checkpoints_of_the_replay[docker]",
    ],
    "test_state_origin.py": [
        "test_a_rank_goes_on_from_its_snapshot[0]",
        "test_sharded_parameters_and_everything_else_that_a_step_depends_on[2-how1]",
    ],
    "test_time_travel.py": [
        "test_the_same_places_are_the_same_bits[docker]",
    ],
    "test_travel.py": [
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
        "test_every_way_to_a_place_leads_to_the_same_bits[docker]",
    ],
    "test_tour.py": [
        "test_a_rank_replays_alone[native-1]",
        "test_a_rank_replays_alone[python-0]",
        "test_a_rank_replays_alone[python-2]",
        "test_a_rank_replays_alone[python-3]",
    ],
    "test_screen_in_tmux.py": [
        "test_a_rank_goes_back_dies_and_comes_back_by_keys[docker]",
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
    "test_long_log.py": [
        "test_an_incident_of_a_job_whose_log_was_folded",
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
}


def is_broad(file: str, name: str) -> bool:
    """`name`: of a test, with the case in brackets."""
    return not {name, name.partition("[")[0]}.isdisjoint(BROAD.get(file, ()))


def unknown(collected: Iterable[tuple[str, str]]) -> list[str]:
    """Entries that no test of the collected files has: (file, name) of each."""
    names: dict[str, set[str]] = {}
    for file, name in collected:
        names.setdefault(file, set()).update((name, name.partition("[")[0]))
    return [f"{file}::{name}" for file in BROAD if file in names for name in BROAD[file] if name not in names[file]]
