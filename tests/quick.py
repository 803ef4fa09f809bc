"""How `make test` is kept short.

The tests in the folders and files of `PREBUILT` are of what a program computes, not of its kernels'
texts, so that they play prebuilt kernels, which have the same bits: no compiler is called. A
parametrized test that takes seconds has a number here: so many of its variants are quick, the
first, the last and others evenly between them, and the rest are slow, part of the campaign.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import pytest

PREBUILT = (
    "data/",
    "functions/",
    "loops/",
    "nn/",
    "report/",
    "test_compositions.py",
    "training/",
)
"""Below tests."""
QUICK = {
    "cuda/test_gpu.py": {
        "test_a_model_trains_as_on_the_reference": 2,
        "test_an_op_means_the_same_by_a_library": 3,
        "test_parameters_are_the_same_bits_for_every_number_of_streams": 3,
        "test_what_the_last_block_adds_is_exact": 2,
    },
    "cuda/test_spills.py": {
        "test_settings_make_texts_of_their_own": 3,
        "test_shapes_that_once_spilled_fit_registers": 3,
    },
    "export/test_cuda.py": {
        "test_ten_training_steps_have_the_bits_of_python": 1,
        "test_the_player_makes_the_calls_of_python_in_its_order": 2,
    },
    "export/test_guards.py": {
        "test_random_programs_with_loops_and_branches": 2,
    },
    "export/test_targets.py": {
        "test_kernels_of_all_kinds": 2,
        "test_random_programs": 1,
        "test_ten_training_steps": 2,
    },
    "export/test_training.py": {
        "test_ten_steps_from_c_have_the_bits_of_python": 1,
    },
    "files/test_checkpoints.py": {
        "test_a_run_goes_on_in_a_new_process": 2,
    },
    "files/test_whole_models.py": {
        "test_models_train_on_from_a_file": 2,
    },
    "frontends/test_onnx_save.py": {
        "test_a_workload": 5,
    },
    "frontends/test_torch_linear.py": {
        "test_from_torch_computes_the_same": 7,
        "test_the_backend_takes_matrices": 2,
    },
    "frontends/test_torch_operators.py": {
        "test_an_operator_and_its_gradient_are_those_of_pytorch": 18,
    },
    "frontends/test_torch_recurrent.py": {
        "test_layers_and_their_gradients_are_those_of_eager": 2,
    },
    "functions/test_ctc.py": {
        "test_losses_and_gradients_are_pytorchs": 3,
    },
    "functions/test_second_gradients_of_pooling.py": {
        "test_a_gradient_penalty_through_pooling": 9,
    },
    "kernels/test_amx.py": {
        "test_convolutions_and_their_gradients": 3,
        "test_matrix_products_of_odd_sizes": 1,
    },
    "kernels/test_c_functions.py": {
        "test_ops_give_the_same_bits": 2,
    },
    "kernels/test_cached_rows.py": {
        "test_what_is_held_has_the_bits_of_what_is_computed_again": 2,
    },
    "kernels/test_contract.py": {
        "test_convolutions_and_gradients_equal_the_reference": 1,
        "test_matmuls_equal_the_reference": 1,
        "test_rows_whose_steps_lie_pages_apart_are_copied_first": 1,
        "test_sums_of_other_dtypes_equal_the_reference": 2,
    },
    "kernels/test_conv_channels.py": {
        "test_channels_in_the_lanes_equal_the_reference": 1,
    },
    "kernels/test_conv_winograd.py": {
        "test_what_is_computed_is_within_the_stated_error": 2,
    },
    "kernels/test_cuda_attend_serialized.py": {
        "test_a_broken_protocol_is_found": 6,
    },
    "kernels/test_cuda_clusters.py": {
        "test_the_bits_are_those_of_a_second_launch": 3,
    },
    "kernels/test_cuda_column_loads.py": {
        "test_sums_are_those_of_the_reference": 4,
    },
    "kernels/test_cuda_column_sums.py": {
        "test_patches_add_up_columns": 2,
        "test_patches_with_columns_compile_without_spills": 1,
        "test_training_is_as_by_the_reference": 2,
    },
    "kernels/test_cuda_halo.py": {
        "test_convolutions_of_patches_are_right": 2,
        "test_patches_compile_without_spills": 1,
    },
    "kernels/test_cuda_nhwc_to_nchw.py": {
        "test_gradients_are_those_of_the_reference": 3,
    },
    "kernels/test_cuda_parts_added.py": {
        "test_blocks_that_would_read_more_than_in_the_time_of_a_launch_add_none": 1,
        "test_they_fit_registers": 2,
        "test_training_is_as_by_the_reference": 1,
    },
    "kernels/test_cuda_parts_of_images.py": {
        "test_convolutions_of_parts_are_right": 2,
        "test_gradients_behind_padded_images_are_right": 2,
    },
    "kernels/test_cuda_programs.py": {
        "test_every_kernel_of_a_training_step_means_what_its_body_means": 1,
    },
    "kernels/test_cuda_segments.py": {
        "test_sums_are_those_of_ascending_order_in_any_order_of_threads": 1,
    },
    "kernels/test_cuda_staging.py": {
        "test_a_broken_protocol_is_found": 3,
        "test_kernels_compile_and_spill_nothing": 8,
        "test_results_are_right": 14,
        "test_wrong_sums_show": 6,
    },
    "kernels/test_cuda_taps.py": {
        "test_gradients_are_right": 2,
    },
    "kernels/test_cuda_tickets.py": {
        "test_partial_sums_of_columns_are_joined_by_tiles": 1,
        "test_programs_leave_the_same_bits_with_and_without_tickets": 2,
        "test_the_bits_are_those_of_a_second_launch": 3,
    },
    "kernels/test_cuda_wgmma.py": {
        "test_every_tile_is_right_for_ragged_products": 2,
    },
    "kernels/test_cuda_wgmma_bulk.py": {
        "test_a_broken_protocol_is_found_in_every_order": 2,
        "test_every_tile_is_right_for_ragged_products": 2,
    },
    "kernels/test_cuda_windows.py": {
        "test_gradients_of_overlapping_windows_are_computed_once": 1,
    },
    "kernels/test_every_second.py": {
        "test_gradients_of_rows_of_windows_are_those_of_numpy": 2,
        "test_strided_windows_are_those_of_numpy_at_every_width": 2,
    },
    "kernels/test_offsets.py": {
        "test_an_unrolled_network_has_as_many_texts_for_any_length": 2,
        "test_slices_are_read_where_they_lie": 11,
    },
    "kernels/test_pairs.py": {
        "test_convolutions_and_their_gradients": 2,
    },
    "kernels/test_prebuilt_along.py": {
        "test_samples": 1,
    },
    "kernels/test_prebuilt_attention.py": {
        "test_blocks_of_every_number_of_registers": 1,
        "test_random_attentions": 1,
        "test_samples": 1,
    },
    "kernels/test_prebuilt_contract.py": {
        "test_random_convolutions": 1,
    },
    "kernels/test_prebuilt_relayout.py": {
        "test_prebuilt_conversions_give_the_bytes_of_generated_ones": 1,
    },
    "kernels/test_prebuilt_strips.py": {
        "test_bodies_give_the_bytes_of_generated_kernels": 1,
    },
    "kernels/test_sections.py": {
        "test_cells_of_any_size_equal_the_reference": 1,
    },
    "kernels/test_sum_orders_reduce.py": {
        "test_a_row_has_the_same_bits_in_every_batch": 1,
        "test_programs_add_as_their_graphs_state": 1,
        "test_rows_are_added_in_order": 1,
        "test_rows_of_other_dtypes": 1,
        "test_rows_with_lanes_are_added_in_order": 1,
    },
    "linalg/test_against_torch.py": {
        "test_samples_have_the_bits_of_calls_of_their_own": 3,
        "test_sizes_that_fill_groups_and_registers": 2,
        "test_values_and_gradients_of_every_order": 10,
    },
    "meaning/test_mutants.py": {
        "test_mutants_are_refused": 1,
    },
    "models/test_models.py": {
        "test_losses_are_those_of_pytorch": 3,
    },
    "models/test_narrow_floats.py": {
        "test_a_model_of_floats_of_two_bytes_trains_as_in_torch": 2,
        "test_a_model_of_floats_of_two_bytes_trains_on_the_simulated_device": 2,
    },
    "nn/test_kv_cache.py": {
        "test_positions_in_any_portions_give_causal_attention": 2,
    },
    "nn/test_recurrent_against_torch.py": {
        "test_outputs_and_gradients_are_those_of_pytorch": 12,
    },
    "ops/test_dtypes.py": {
        "test_every_op_means_the_same_in_every_dtype_that_it_accepts": 2,
    },
    "ops/test_function_sweep.py": {
        "test_functions_mean_the_same_on_every_device": 2,
    },
    "ops/test_sweep.py": {
        "test_ops_mean_the_same_on_every_device": 34,
        "test_ops_mean_the_same_where_no_access_is_checked": 2,
    },
    "passes/test_channel_lanes.py": {
        "test_training_is_the_same_with_channels_in_the_lanes": 2,
    },
    "passes/test_channels_last.py": {
        "test_training_means_the_same": 2,
    },
    "passes/test_wide_joins.py": {
        "test_concats_are_split_into_groups": 3,
    },
    "runtime/test_clang.py": {
        "test_a_model_built_by_clang_trains_as_on_the_reference": 2,
        "test_clang_builds_every_op_and_it_means_the_same": 1,
    },
    "runtime/test_join_launches.py": {
        "test_it_leaves_the_same_bits": 2,
    },
    "runtime/test_joined_tickets.py": {
        "test_it_leaves_the_bits_of_tickets": 1,
        "test_parts_leave_the_bits_of_tickets": 2,
    },
    "runtime/test_kernel_autotuner.py": {
        "test_every_candidate_of_a_gpu_computes_what_the_reference_does": 1,
    },
    "runtime/test_many_plans.py": {
        "test_plans_have_the_bits_of_one_stream": 7,
    },
    "runtime/test_persistent.py": {
        "test_it_leaves_the_same_bits": 2,
    },
    "runtime/test_played_plans.py": {
        "test_planned_graphs_have_the_bits_of_numpy_for_all_streams_and_threads": 5,
    },
    "runtime/test_recurrent_loops.py": {
        "test_how_many_nodes_a_step_takes": 8,
        "test_the_bits_are_the_same_however_it_is_played": 2,
    },
    "runtime/test_tiers.py": {
        "test_compiled_kernels_replace_prebuilt_ones_and_the_bits_stay": 1,
    },
    "runtime/test_tiers_networks.py": {
        "test_prebuilt_kernels_have_the_bits_of_compiled_ones": 5,
    },
    "runtime/test_time_steps.py": {
        "test_training_has_the_same_bits_for_every_number_of_streams": 1,
    },
    "sim/test_kernel_bugs.py": {
        "test_the_bug_is_found": 15,
    },
    "sim/test_mutated_kernels.py": {
        "test_a_mistake_in_a_template_is_found": 2,
    },
    "sim/test_sim_programs.py": {
        "test_a_training_matches_the_reference": 2,
    },
    "sim/test_words.py": {
        "test_a_broken_protocol_is_found": 6,
    },
    "sklearn/test_estimators.py": {
        "test_scikit_learn_s_checks_pass": 2,
    },
    "test_against_torch.py": {
        "test_losses_and_weights_follow_pytorch": 2,
    },
    "test_attention_programs.py": {
        "test_attention_and_its_gradients_are_pytorchs": 2,
    },
    "test_benchmarks.py": {
        "test_losses_and_outputs_are_those_of_pytorch": 1,
    },
    "test_loss_scale.py": {
        "test_an_overflow_changes_nothing_but_the_scale": 2,
    },
    "test_micro_batches.py": {
        "test_micro_batches_give_the_step_of_the_batch": 2,
    },
}
"""By the file, below tests, and the test's name."""


def plays_prebuilt(item: pytest.Item) -> bool:
    """Whether a test's programs on the CPU are prebuilt kernels alone."""
    return item.nodeid.removeprefix("tests/").startswith(PREBUILT)


def mark_slow(items: Iterable[pytest.Item]) -> None:
    """Mark the variants beyond those numbers as slow."""
    variants = defaultdict(list)
    for item in items:
        file, _, name = item.nodeid.removeprefix("tests/").partition("[")[0].partition("::")
        if name in QUICK.get(file, ()) and item.get_closest_marker("slow") is None:
            variants[file, name].append(item)
    for (file, name), own in variants.items():
        count, last = QUICK[file][name], len(own) - 1
        kept = {round(i * last / max(count - 1, 1)) for i in range(count)}
        for place, item in enumerate(own):
            if place not in kept:
                item.add_marker(pytest.mark.slow)
