# SPDX-License-Identifier: Apache-2.0
# Made from the public headers by lab/pages/python_bindings.py; change the headers, not this file.
"""What lockstep.h declares, for ctypes. Structs that the header only names are c_void_p."""
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Tuple

LS_OK = 0
LS_FAILED = 1
LS_USAGE = 2
LS_BAD_INPUT = 3
LS_UNAVAILABLE = 4
LS_PEER_LOST = 5
LS_OUT_OF_MEMORY = 6
LS_ABORTED = 7
LS_UNSUPPORTED = 8
LS_AGAIN = 9
LS_INTERRUPTED = 130
LS_LOG_ERROR = 0
LS_LOG_WARN = 1
LS_LOG_INFO = 2
LS_LOG_DEBUG = 3
LS_METRICS = 16
LS_VARIABLE_DIMS = 6
LS_OWN_STATES = 3
LS_ZERO = 1 << 63
LS_ARRAY_DIMS = 6


class ls_metric(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_double),
        ("upwards", c_uint32),
        ("reserved", c_uint32),
    ]


class ls_metrics(Structure):
    _fields_ = [
        ("count", c_uint32),
        ("list", ls_metric * LS_METRICS),
    ]


class ls_epoch(Structure):
    _fields_ = [
        ("epoch", c_uint64),
        ("steps", c_uint64),
        ("examples", c_uint64),
        ("seconds", c_double),
        ("learning_rate", c_double),
        ("metrics", ls_metrics),
    ]


class ls_fit_state(Structure):
    _fields_ = [
        ("model", c_void_p),
        ("epochs", c_uint64),
        ("steps", c_uint64),
        ("epoch_steps", c_uint64),
        ("asynchronous", c_uint32),
        ("steps_done", c_uint64),
        ("epoch", ls_epoch),
        ("step_examples", c_uint64),
        ("step_metrics", ls_metrics),
        ("status", c_int),
        ("batch", c_uint64),
        ("batches", c_uint64),
    ]


class ls_callback_state(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("bytes", c_uint64),
    ]


class ls_callbacks(Structure):
    _fields_ = [
        ("context", c_void_p),
        ("name", c_char_p),
        ("terminate_on_nan", c_uint32),
        ("reserved", c_uint32),
        ("on_train_begin", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_train_end", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_epoch_begin", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_epoch_end", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_segment_begin", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state), POINTER(c_uint64))),
        ("on_segment_end", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_train_batch_end", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("save_state", CFUNCTYPE(c_int, c_void_p, POINTER(ls_callback_state))),
        ("load_state", CFUNCTYPE(c_int, c_void_p, POINTER(ls_callback_state))),
        ("on_test_begin", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_test_end", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_train_batch_begin", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_test_batch_begin", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_test_batch_end", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_predict_begin", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_predict_end", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_predict_batch_begin", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
        ("on_predict_batch_end", CFUNCTYPE(c_int, c_void_p, POINTER(ls_fit_state))),
    ]


class ls_variable(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("ndims", c_uint32),
        ("trained", c_uint32),
        ("dims", c_int64 * LS_VARIABLE_DIMS),
        ("elements", c_uint64),
    ]


class ls_update_range(Structure):
    _fields_ = [
        ("variable", c_char_p),
        ("first", c_uint64),
        ("count", c_uint64),
        ("parameters", POINTER(c_float)),
        ("gradients", POINTER(c_float)),
        ("states", POINTER(c_float) * LS_OWN_STATES),
        ("update", c_uint64),
        ("learning_rate", c_float),
        ("reserved", c_float),
    ]


class ls_own_optimizer(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("state_count", c_uint32),
        ("initial", c_float * LS_OWN_STATES),
        ("learning_rate", c_double),
        ("update", CFUNCTYPE(c_int, c_void_p, POINTER(ls_update_range))),
        ("context", c_void_p),
    ]


class ls_layer(Structure):
    _fields_ = [
        ("class_name", c_char_p),
        ("name", c_char_p),
        ("activation", c_char_p),
        ("options", c_char_p),
        ("kernel_initializer", c_char_p),
        ("bias_initializer", c_char_p),
        ("depthwise_initializer", c_char_p),
        ("pointwise_initializer", c_char_p),
        ("embeddings_initializer", c_char_p),
        ("kernel_regularizer", c_char_p),
        ("bias_regularizer", c_char_p),
        ("no_bias", c_bool),
        ("frozen", c_bool),
        ("units", c_int64),
        ("n", c_int64),
        ("filters", c_int64),
        ("kernel_size", c_int64),
        ("kernel_columns", c_int64),
        ("strides", c_int64),
        ("strides_columns", c_int64),
        ("dilation_rate", c_int64),
        ("dilation_columns", c_int64),
        ("groups", c_int64),
        ("depth_multiplier", c_int64),
        ("padding", c_char_p),
        ("data_format", c_char_p),
        ("pool_size", c_int64),
        ("pool_columns", c_int64),
        ("border", c_int64 * 4),
        ("size", c_int64),
        ("size_columns", c_int64),
        ("interpolation", c_char_p),
        ("dtype", c_char_p),
        ("shape", c_int64 * 6),
        ("input_dim", c_int64),
        ("output_dim", c_int64),
        ("num_heads", c_int64),
        ("key_dim", c_int64),
        ("value_dim", c_int64),
        ("dropout", c_double),
        ("causal", c_bool),
        ("rate", c_double),
        ("stddev", c_double),
        ("scale", c_double),
        ("offset", c_double),
        ("negative_slope", c_double),
        ("alpha", c_double),
        ("max_value", c_double),
        ("momentum", c_double),
        ("epsilon", c_double),
        ("no_scale", c_bool),
        ("no_center", c_bool),
        ("synchronized", c_bool),
        ("gamma_initializer", c_char_p),
        ("beta_initializer", c_char_p),
    ]


class ls_listed_plugin(Structure):
    _fields_ = [
        ("kind", c_char_p),
        ("name", c_char_p),
        ("version", c_char_p),
        ("summary", c_char_p),
        ("path", c_char_p),
        ("reason", c_char_p),
        ("usable", c_uint32),
    ]


class ls_listed_device(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("hardware", c_char_p),
        ("reason", c_char_p),
        ("count", c_uint32),
        ("usable", c_uint32),
    ]


class ls_run_options(Structure):
    _fields_ = [
        ("strategy", c_char_p),
        ("device", c_char_p),
        ("replicas", c_uint32),
        ("threads", c_uint32),
        ("seed", c_uint64),
        ("deadline_seconds", c_double),
        ("plugin_path", c_char_p),
        ("progress", c_uint32),
        ("verbose", c_uint32),
        ("stuck", CFUNCTYPE(None, c_uint32)),
        ("precision", c_char_p),
        ("wire", c_char_p),
        ("compress", c_char_p),
        ("devices", c_char_p),
        ("cluster", c_char_p),
        ("insecure", c_uint32),
        ("network", c_char_p),
        ("silence_seconds", c_double),
        ("join_seconds", c_double),
        ("elastic", c_char_p),
        ("share", c_char_p),
        ("python", c_uint32),
        ("command_line", POINTER(c_char_p)),
        ("reproducible", c_uint32),
        ("topology", c_char_p),
    ]


class ls_array(Structure):
    _fields_ = [
        ("dtype", c_char_p),
        ("ndims", c_uint32),
        ("dims", c_int64 * LS_ARRAY_DIMS),
        ("values", c_void_p),
    ]


class ls_batch_arrays(Structure):
    _fields_ = [
        ("inputs", POINTER(ls_array)),
        ("input_count", c_uint32),
        ("target", POINTER(ls_array)),
        ("weights", POINTER(ls_array)),
        ("target_count", c_uint32),
    ]


class ls_generator(Structure):
    _fields_ = [
        ("inputs", POINTER(ls_array)),
        ("input_count", c_uint32),
        ("target", POINTER(ls_array)),
        ("classes", c_uint32),
        ("examples", c_uint64),
        ("fill", CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64, c_uint64, POINTER(c_void_p), c_void_p, POINTER(c_uint64))),
        ("context", c_void_p),
    ]


class ls_compile_options(Structure):
    _fields_ = [
        ("optimizer", c_char_p),
        ("own_optimizer", POINTER(ls_own_optimizer)),
        ("loss", c_char_p),
        ("metrics", c_char_p),
        ("lr_scaling", c_char_p),
        ("learning_rate_schedule", c_char_p),
        ("loss_scale", c_char_p),
        ("keep_outputs", c_uint32),
        ("loss_weights", c_char_p),
    ]


class ls_checkpoint_options(Structure):
    _fields_ = [
        ("folder", c_char_p),
        ("steps", c_uint64),
        ("seconds", c_double),
        ("name", c_char_p),
        ("keep", c_uint32),
        ("best", c_char_p),
        ("resume", c_uint32),
    ]


class ls_fit_options(Structure):
    _fields_ = [
        ("epochs", c_uint64),
        ("steps", c_uint64),
        ("batch", c_uint64),
        ("replica_batch", c_uint64),
        ("microbatches", c_uint32),
        ("accumulate", c_uint32),
        ("shuffle", c_char_p),
        ("validation", c_void_p),
        ("check_replicas", c_uint64),
        ("report", c_char_p),
        ("timeline", c_char_p),
        ("timeline_first", c_uint64),
        ("timeline_last", c_uint64),
        ("command", c_char_p),
        ("class_weight", c_char_p),
        ("callbacks", POINTER(ls_callbacks)),
        ("callback_count", c_uint32),
        ("checkpoints", POINTER(ls_checkpoint_options)),
        ("log_every", c_uint64),
        ("initial_epoch", c_uint64),
        ("validation_freq", c_uint64),
        ("validation_epochs", POINTER(c_uint64)),
        ("validation_epoch_count", c_uint32),
        ("progress", c_uint64),
    ]


class ls_scores(Structure):
    _fields_ = [
        ("examples", c_uint64),
        ("seconds", c_double),
        ("metrics", ls_metrics),
    ]


class ls_output(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("ndims", c_uint32),
        ("takes_classes", c_uint32),
        ("has_loss", c_uint32),
        ("dims", c_int64 * LS_ARRAY_DIMS),
        ("elements", c_uint64),
    ]


class ls_distribute_options(Structure):
    _fields_ = [
        ("batch", c_uint64),
        ("replica_batch", c_uint64),
        ("shuffle", c_char_p),
        ("evaluation", c_uint32),
    ]


class ls_job_options(Structure):
    _fields_ = [
        ("rank", c_uint32),
        ("size", c_uint32),
        ("address", c_char_p),
        ("listen_fd", c_int32),
        ("secret", c_char_p),
        ("insecure", c_uint32),
        ("join_seconds", c_double),
        ("deadline_seconds", c_double),
        ("lost_after_seconds", c_double),
        ("network", c_char_p),
        ("plugin_path", c_char_p),
    ]


class ls_comm_options(Structure):
    _fields_ = [
        ("collective", c_char_p),
        ("transport", c_char_p),
        ("plugin_path", c_char_p),
        ("size", c_uint32),
        ("deadline_seconds", c_double),
        ("name", c_char_p),
        ("job", c_void_p),
        ("members", POINTER(c_uint32)),
        ("messages", c_uint32),
    ]


# name: (result, arguments)
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "ls_version": (c_char_p, []),
    "ls_set_log": (None, [CFUNCTYPE(None, c_void_p, c_uint32, c_char_p), c_void_p]),
    "ls_last_error": (c_char_p, []),
    "ls_list_plugins": (c_int, [c_char_p, POINTER(POINTER(ls_listed_plugin)), POINTER(c_size_t)]),
    "ls_list_devices": (c_int, [c_char_p, POINTER(POINTER(ls_listed_device)), POINTER(c_size_t)]),
    "ls_free_list": (None, [c_void_p]),
    "ls_run_open_sized": (c_int, [POINTER(ls_run_options), c_size_t, POINTER(c_void_p)]),
    "ls_run_close": (None, [c_void_p]),
    "ls_run_replicas": (c_uint32, [c_void_p]),
    "ls_run_is_chief": (c_uint32, [c_void_p]),
    "ls_run_is_server": (c_uint32, [c_void_p]),
    "ls_run_serve": (c_int, [c_void_p]),
    "ls_run_interrupt": (None, [c_void_p]),
    "ls_plugin_register": (c_int, [c_void_p, c_void_p]),
    "ls_data_open": (c_int, [c_char_p, c_char_p, POINTER(c_void_p)]),
    "ls_run_data_open": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    "ls_data_from_memory": (c_int, [POINTER(ls_array), c_uint32, POINTER(ls_array), POINTER(c_void_p)]),
    "ls_data_from_memory_weighted": (c_int, [POINTER(ls_array), c_uint32, POINTER(ls_array), POINTER(ls_array), POINTER(c_void_p)]),
    "ls_data_borrow": (c_int, [POINTER(ls_batch_arrays), CFUNCTYPE(None, c_void_p), c_void_p, POINTER(c_void_p)]),
    "ls_data_from_generator_sized": (c_int, [POINTER(ls_generator), c_size_t, POINTER(c_void_p)]),
    "ls_data_close": (None, [c_void_p]),
    "ls_data_count": (c_uint64, [c_void_p]),
    "ls_sequential_create_sized": (c_int, [c_void_p, c_char_p, POINTER(ls_layer), c_size_t, POINTER(c_void_p)]),
    "ls_input_sized": (c_int, [c_void_p, POINTER(ls_layer), c_size_t, POINTER(c_void_p)]),
    "ls_layer_call_sized": (c_int, [POINTER(ls_layer), c_size_t, POINTER(c_void_p), c_uint32, POINTER(c_void_p)]),
    "ls_layer_call_again": (c_int, [c_void_p, POINTER(c_void_p), c_uint32, POINTER(c_void_p)]),
    "ls_model_call": (c_int, [c_void_p, POINTER(c_void_p), c_uint32, POINTER(c_void_p), c_uint32]),
    "ls_model_create": (c_int, [c_char_p, POINTER(c_void_p), c_uint32, POINTER(c_void_p), c_uint32, POINTER(c_void_p)]),
    "ls_model_open": (c_int, [c_void_p, c_char_p, c_void_p, POINTER(c_void_p)]),
    "ls_model_open_json": (c_int, [c_void_p, c_char_p, c_char_p, c_void_p, POINTER(c_void_p)]),
    "ls_model_close": (None, [c_void_p]),
    "ls_compile_sized": (c_int, [c_void_p, POINTER(ls_compile_options), c_size_t]),
    "ls_set_learning_rate": (c_int, [c_void_p, c_double]),
    "ls_learning_rate": (c_double, [c_void_p]),
    "ls_model_takes_classes": (c_uint32, [c_void_p]),
    "ls_metric_value": (c_double, [POINTER(ls_metrics), c_char_p]),
    "ls_callback_open": (c_int, [c_void_p, c_char_p, POINTER(POINTER(ls_callbacks))]),
    "ls_callback_close": (None, [POINTER(ls_callbacks)]),
    "ls_set_callbacks_sized": (c_int, [c_void_p, POINTER(ls_callbacks), c_size_t, c_uint32]),
    "ls_stop_training": (None, [c_void_p]),
    "ls_training_is_stopped": (c_uint32, [c_void_p]),
    "ls_fit_sized": (c_int, [c_void_p, c_void_p, POINTER(ls_fit_options), c_size_t, c_size_t, c_size_t]),
    "ls_evaluate": (c_int, [c_void_p, c_void_p, c_uint64, POINTER(ls_scores)]),
    "ls_predict": (c_int, [c_void_p, c_void_p, c_uint64, POINTER(c_float)]),
    "ls_predict_to_file": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p]),
    "ls_model_output_elements": (c_uint64, [c_void_p]),
    "ls_model_output_shape": (c_uint32, [c_void_p, POINTER(c_int64)]),
    "ls_output_count": (c_uint32, [c_void_p]),
    "ls_output_describe": (c_int, [c_void_p, c_uint32, POINTER(ls_output)]),
    "ls_fit_losses": (POINTER(c_float), [c_void_p, POINTER(c_size_t)]),
    "ls_fit_epochs": (POINTER(ls_epoch), [c_void_p, POINTER(c_size_t)]),
    "ls_model_summary": (None, [c_void_p, c_void_p]),
    "ls_model_write_json": (c_int, [c_void_p, c_void_p]),
    "ls_variable_count": (c_uint32, [c_void_p]),
    "ls_variable_describe": (c_int, [c_void_p, c_uint32, POINTER(ls_variable)]),
    "ls_get_variable": (c_int, [c_void_p, c_uint32, POINTER(c_float)]),
    "ls_set_variable": (c_int, [c_void_p, c_uint32, POINTER(c_float)]),
    "ls_get_gradient": (c_int, [c_void_p, c_uint32, POINTER(c_float)]),
    "ls_has_gradients": (c_uint32, [c_void_p]),
    "ls_load_weights": (c_int, [c_void_p, c_char_p]),
    "ls_save_weights": (c_int, [c_void_p, c_char_p]),
    "ls_model_save": (c_int, [c_void_p, c_char_p]),
    "ls_model_load": (c_int, [c_void_p, c_char_p]),
    "ls_distribute_dataset_sized": (c_int, [c_void_p, c_void_p, POINTER(ls_distribute_options), c_size_t, POINTER(c_void_p)]),
    "ls_distributed_close": (None, [c_void_p]),
    "ls_distributed_steps": (c_uint64, [c_void_p]),
    "ls_distributed_next": (c_uint32, [c_void_p]),
    "ls_strategy_run": (c_int, [c_void_p, CFUNCTYPE(c_int, c_void_p, c_void_p), c_void_p]),
    "ls_strategy_reduce": (c_int, [c_void_p, c_char_p, POINTER(c_double), c_uint32, POINTER(c_double)]),
    "ls_strategy_gather": (c_int, [c_void_p, POINTER(c_double), c_uint32, POINTER(c_double)]),
    "ls_strategy_metrics": (None, [c_void_p, POINTER(ls_metrics), POINTER(ls_metrics)]),
    "ls_strategy_reset_metrics": (None, [c_void_p]),
    "ls_broadcast_variables": (c_int, [c_void_p, c_uint32]),
    "ls_check_replicas": (c_int, [c_void_p]),
    "ls_context_rank": (c_uint32, [c_void_p]),
    "ls_context_local_rank": (c_uint32, [c_void_p]),
    "ls_context_world": (c_uint32, [c_void_p]),
    "ls_context_is_chief": (c_uint32, [c_void_p]),
    "ls_context_step": (c_uint64, [c_void_p]),
    "ls_context_examples": (c_uint64, [c_void_p]),
    "ls_context_global_examples": (c_uint64, [c_void_p]),
    "ls_context_input": (c_int, [c_void_p, c_uint32, POINTER(ls_array)]),
    "ls_context_target": (c_int, [c_void_p, POINTER(ls_array)]),
    "ls_context_forward": (c_int, [c_void_p]),
    "ls_context_loss": (c_int, [c_void_p, POINTER(c_double), POINTER(c_double)]),
    "ls_context_output": (c_int, [c_void_p, POINTER(ls_array)]),
    "ls_context_output_gradient": (c_int, [c_void_p, POINTER(POINTER(c_float))]),
    "ls_context_set_loss": (c_int, [c_void_p, c_double]),
    "ls_context_update_metrics": (c_int, [c_void_p]),
    "ls_context_gradients": (c_int, [c_void_p]),
    "ls_context_apply": (c_int, [c_void_p]),
    "ls_context_minimize": (c_int, [c_void_p]),
    "ls_train_on_batch": (c_int, [c_void_p, POINTER(ls_batch_arrays), POINTER(ls_metrics)]),
    "ls_test_on_batch": (c_int, [c_void_p, POINTER(ls_batch_arrays), POINTER(ls_metrics)]),
    "ls_predict_on_batch": (c_int, [c_void_p, POINTER(ls_array), c_uint32, POINTER(c_float)]),
    "ls_job_open_sized": (c_int, [POINTER(ls_job_options), c_size_t, POINTER(c_void_p)]),
    "ls_job_close": (None, [c_void_p]),
    "ls_job_lost": (c_char_p, [c_void_p]),
    "ls_job_give_up": (None, [c_void_p, c_char_p]),
    "ls_job_allocate": (c_int, [c_void_p, c_uint64, POINTER(c_void_p)]),
    "ls_job_free": (None, [c_void_p]),
    "ls_comm_open_sized": (c_int, [POINTER(ls_comm_options), c_size_t, POINTER(c_void_p)]),
    "ls_comm_close": (None, [c_void_p]),
    "ls_comm_abort": (None, [c_void_p]),
    "ls_comm_rank": (c_uint32, [c_void_p]),
    "ls_comm_size": (c_uint32, [c_void_p]),
    "ls_comm_set_deadline": (None, [c_void_p, c_double]),
    "ls_comm_about": (c_char_p, [c_void_p]),
    "ls_comm_all_reduce": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_char_p]),
    "ls_comm_reduce": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_char_p, c_uint32]),
    "ls_comm_broadcast": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_uint32]),
    "ls_comm_all_gather": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_void_p]),
    "ls_comm_reduce_scatter": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_char_p, c_void_p]),
    "ls_comm_all_to_all": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_void_p]),
    "ls_comm_barrier": (c_int, [c_void_p]),
    "ls_comm_work_wait": (c_int, [c_void_p, c_double]),
    "ls_comm_work_free": (None, [c_void_p]),
    "ls_comm_start_all_reduce": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_char_p, POINTER(c_void_p)]),
    "ls_comm_start_reduce": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_char_p, c_uint32, POINTER(c_void_p)]),
    "ls_comm_start_broadcast": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_uint32, POINTER(c_void_p)]),
    "ls_comm_start_all_gather": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_void_p, POINTER(c_void_p)]),
    "ls_comm_start_reduce_scatter": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_char_p, c_void_p, POINTER(c_void_p)]),
    "ls_comm_start_all_to_all": (c_int, [c_void_p, c_void_p, c_uint64, c_char_p, c_void_p, POINTER(c_void_p)]),
    "ls_comm_start_barrier": (c_int, [c_void_p, POINTER(c_void_p)]),
    "ls_comm_start_send": (c_int, [c_void_p, c_void_p, c_uint64, c_uint32, c_uint64, POINTER(c_void_p)]),
    "ls_comm_start_receive": (c_int, [c_void_p, c_void_p, c_uint64, c_uint32, c_uint64, POINTER(c_void_p)]),
    "ls_comm_work_source": (c_uint32, [c_void_p]),
}
