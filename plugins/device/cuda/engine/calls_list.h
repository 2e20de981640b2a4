// SPDX-License-Identifier: Apache-2.0
// The calls and constants of the CUDA runtime, cuBLASLt and cuDNN that the device uses, with our own
// declarations: what is written here is all that the plugin's C code needs to be compiled. A test compares
// each with NVIDIA's headers where those are found. Enumerations are unsigned int here, as gcc has them.
//
// Whoever includes this defines CUDA_CALL(library, result, name, arguments) or CUDA_CONSTANT(name, value).

#ifdef CUDA_CALL
CUDA_CALL(RUNTIME, unsigned, cudaDriverGetVersion, (int *version))
CUDA_CALL(RUNTIME, unsigned, cudaRuntimeGetVersion, (int *version))
CUDA_CALL(RUNTIME, unsigned, cudaGetDeviceCount, (int *count))
CUDA_CALL(RUNTIME, unsigned, cudaSetDevice, (int device))
CUDA_CALL(RUNTIME, unsigned, cudaDeviceGetAttribute, (int *value, unsigned attribute, int device))
CUDA_CALL(RUNTIME, const char *, cudaGetErrorName, (unsigned error))
CUDA_CALL(RUNTIME, const char *, cudaGetErrorString, (unsigned error))
CUDA_CALL(RUNTIME, unsigned, cudaGetLastError, (void))
CUDA_CALL(RUNTIME, unsigned, cudaMalloc, (void **memory, size_t bytes))
CUDA_CALL(RUNTIME, unsigned, cudaFree, (void *memory))
CUDA_CALL(RUNTIME, unsigned, cudaMemGetInfo, (size_t * unused, size_t *total))
CUDA_CALL(RUNTIME, unsigned, cudaHostAlloc, (void **memory, size_t bytes, unsigned flags))
CUDA_CALL(RUNTIME, unsigned, cudaFreeHost, (void *memory))
CUDA_CALL(RUNTIME, unsigned, cudaPointerGetAttributes,
          (struct cudaPointerAttributes * out, const void *memory))
CUDA_CALL(RUNTIME, unsigned, cudaMemcpyAsync,
          (void *to, const void *from, size_t bytes, unsigned kind, struct CUstream_st *stream))
CUDA_CALL(RUNTIME, unsigned, cudaMemsetAsync,
          (void *memory, int value, size_t bytes, struct CUstream_st *stream))
CUDA_CALL(RUNTIME, unsigned, cudaStreamCreateWithFlags,
          (struct CUstream_st * *stream, unsigned flags))
CUDA_CALL(RUNTIME, unsigned, cudaDeviceGetStreamPriorityRange, (int *least, int *greatest))
CUDA_CALL(RUNTIME, unsigned, cudaStreamCreateWithPriority,
          (struct CUstream_st * *stream, unsigned flags, int priority))
CUDA_CALL(RUNTIME, unsigned, cudaStreamDestroy, (struct CUstream_st * stream))
CUDA_CALL(RUNTIME, unsigned, cudaStreamQuery, (struct CUstream_st * stream))
CUDA_CALL(RUNTIME, unsigned, cudaStreamSynchronize, (struct CUstream_st * stream))
CUDA_CALL(RUNTIME, unsigned, cudaEventCreateWithFlags, (struct CUevent_st * *event, unsigned flags))
CUDA_CALL(RUNTIME, unsigned, cudaEventDestroy, (struct CUevent_st * event))
CUDA_CALL(RUNTIME, unsigned, cudaEventRecord,
          (struct CUevent_st * event, struct CUstream_st *stream))
CUDA_CALL(RUNTIME, unsigned, cudaEventQuery, (struct CUevent_st * event))
CUDA_CALL(RUNTIME, unsigned, cudaStreamWaitEvent,
          (struct CUstream_st * stream, struct CUevent_st *event, unsigned flags))
CUDA_CALL(RUNTIME, unsigned, cudaDeviceGetPCIBusId, (char *out, int bytes, int device))
CUDA_CALL(RUNTIME, unsigned, cudaDeviceCanAccessPeer, (int *out, int device, int peer))
CUDA_CALL(RUNTIME, unsigned, cudaDeviceEnablePeerAccess, (int peer, unsigned flags))
CUDA_CALL(RUNTIME, unsigned, cudaMemcpyPeerAsync,
          (void *to, int to_device, const void *from, int from_device, size_t bytes,
           struct CUstream_st *stream))
CUDA_CALL(RUNTIME, unsigned, cudaStreamBeginCapture, (struct CUstream_st * stream, unsigned mode))
CUDA_CALL(RUNTIME, unsigned, cudaStreamEndCapture,
          (struct CUstream_st * stream, struct CUgraph_st **graph))
CUDA_CALL(RUNTIME, unsigned, cudaGraphInstantiate,
          (struct CUgraphExec_st * *out, struct CUgraph_st *graph, unsigned long long flags))
CUDA_CALL(RUNTIME, unsigned, cudaGraphUpload,
          (struct CUgraphExec_st * graph, struct CUstream_st *stream))
CUDA_CALL(RUNTIME, unsigned, cudaGraphLaunch,
          (struct CUgraphExec_st * graph, struct CUstream_st *stream))
CUDA_CALL(RUNTIME, unsigned, cudaGraphExecDestroy, (struct CUgraphExec_st * graph))
CUDA_CALL(RUNTIME, unsigned, cudaGraphDestroy, (struct CUgraph_st * graph))

CUDA_CALL(BLAS, unsigned, cublasLtCreate, (struct cublasLtContext * *handle))
CUDA_CALL(BLAS, unsigned, cublasLtDestroy, (struct cublasLtContext * handle))
CUDA_CALL(BLAS, const char *, cublasLtGetStatusString, (unsigned status))
CUDA_CALL(BLAS, unsigned, cublasLtMatmulDescCreate,
          (cublasLtMatmulDescOpaque_t * *desc, unsigned compute, unsigned scale))
CUDA_CALL(BLAS, unsigned, cublasLtMatmulDescDestroy, (cublasLtMatmulDescOpaque_t * desc))
CUDA_CALL(BLAS, unsigned, cublasLtMatmulDescSetAttribute,
          (cublasLtMatmulDescOpaque_t * desc, unsigned attribute, const void *value, size_t bytes))
CUDA_CALL(BLAS, unsigned, cublasLtMatrixLayoutCreate,
          (cublasLtMatrixLayoutOpaque_t * *layout, unsigned type, uint64_t rows, uint64_t columns,
           int64_t leading))
CUDA_CALL(BLAS, unsigned, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayoutOpaque_t * layout))
CUDA_CALL(BLAS, unsigned, cublasLtMatrixLayoutSetAttribute,
          (cublasLtMatrixLayoutOpaque_t * layout, unsigned attribute, const void *value,
           size_t bytes))
CUDA_CALL(BLAS, unsigned, cublasLtMatmulPreferenceCreate,
          (cublasLtMatmulPreferenceOpaque_t * *preference))
CUDA_CALL(BLAS, unsigned, cublasLtMatmulPreferenceDestroy,
          (cublasLtMatmulPreferenceOpaque_t * preference))
CUDA_CALL(BLAS, unsigned, cublasLtMatmulPreferenceSetAttribute,
          (cublasLtMatmulPreferenceOpaque_t * preference, unsigned attribute, const void *value,
           size_t bytes))
CUDA_CALL(BLAS, unsigned, cublasLtMatmulAlgoGetHeuristic,
          (struct cublasLtContext * handle, cublasLtMatmulDescOpaque_t *desc,
           cublasLtMatrixLayoutOpaque_t *a, cublasLtMatrixLayoutOpaque_t *b,
           cublasLtMatrixLayoutOpaque_t *c, cublasLtMatrixLayoutOpaque_t *d,
           cublasLtMatmulPreferenceOpaque_t *preference, int wanted,
           cublasLtMatmulHeuristicResult_t *results, int *found))
CUDA_CALL(BLAS, unsigned, cublasLtMatmul,
          (struct cublasLtContext * handle, cublasLtMatmulDescOpaque_t *desc, const void *alpha,
           const void *a, cublasLtMatrixLayoutOpaque_t *a_layout, const void *b,
           cublasLtMatrixLayoutOpaque_t *b_layout, const void *beta, const void *c,
           cublasLtMatrixLayoutOpaque_t *c_layout, void *d, cublasLtMatrixLayoutOpaque_t *d_layout,
           const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
           struct CUstream_st *stream))

CUDA_CALL(DNN, unsigned, cudnnCreate, (struct cudnnContext * *handle))
CUDA_CALL(DNN, unsigned, cudnnDestroy, (struct cudnnContext * handle))
CUDA_CALL(DNN, unsigned, cudnnSetStream, (struct cudnnContext * handle, struct CUstream_st *stream))
CUDA_CALL(DNN, const char *, cudnnGetErrorString, (unsigned status))
CUDA_CALL(DNN, size_t, cudnnGetVersion, (void))
CUDA_CALL(DNN, unsigned, cudnnCreateTensorDescriptor, (struct cudnnTensorStruct * *desc))
CUDA_CALL(DNN, unsigned, cudnnDestroyTensorDescriptor, (struct cudnnTensorStruct * desc))
CUDA_CALL(DNN, unsigned, cudnnSetTensor4dDescriptor,
          (struct cudnnTensorStruct * desc, unsigned format, unsigned type, int n, int c, int h,
           int w))
CUDA_CALL(DNN, unsigned, cudnnBackendCreateDescriptor, (unsigned type, void **descriptor))
CUDA_CALL(DNN, unsigned, cudnnBackendDestroyDescriptor, (void *descriptor))
CUDA_CALL(DNN, unsigned, cudnnBackendFinalize, (void *descriptor))
CUDA_CALL(DNN, unsigned, cudnnBackendSetAttribute,
          (void *descriptor, unsigned name, unsigned type, int64_t count, const void *values))
CUDA_CALL(DNN, unsigned, cudnnBackendGetAttribute,
          (void *descriptor, unsigned name, unsigned type, int64_t wanted, int64_t *count,
           void *values))
CUDA_CALL(DNN, unsigned, cudnnBackendExecute,
          (struct cudnnContext * handle, void *plan, void *pack))
CUDA_CALL(DNN, unsigned, cudnnCreatePoolingDescriptor, (struct cudnnPoolingStruct * *desc))
CUDA_CALL(DNN, unsigned, cudnnDestroyPoolingDescriptor, (struct cudnnPoolingStruct * desc))
CUDA_CALL(DNN, unsigned, cudnnSetPooling2dDescriptor,
          (struct cudnnPoolingStruct * desc, unsigned mode, unsigned nan, int window_h,
           int window_w, int pad_h, int pad_w, int stride_h, int stride_w))
CUDA_CALL(DNN, unsigned, cudnnGetPooling2dForwardOutputDim,
          (struct cudnnPoolingStruct * desc, struct cudnnTensorStruct *x, int *n, int *c, int *h,
           int *w))
CUDA_CALL(DNN, unsigned, cudnnPoolingForward,
          (struct cudnnContext * handle, struct cudnnPoolingStruct *pooling, const void *alpha,
           struct cudnnTensorStruct *x_desc, const void *x, const void *beta,
           struct cudnnTensorStruct *y_desc, void *y))
CUDA_CALL(DNN, unsigned, cudnnPoolingBackward,
          (struct cudnnContext * handle, struct cudnnPoolingStruct *pooling, const void *alpha,
           struct cudnnTensorStruct *y_desc, const void *y, struct cudnnTensorStruct *dy_desc,
           const void *dy, struct cudnnTensorStruct *x_desc, const void *x, const void *beta,
           struct cudnnTensorStruct *dx_desc, void *dx))
#undef CUDA_CALL
#endif

#ifdef CUDA_CONSTANT
CUDA_CONSTANT(cudaSuccess, 0)
CUDA_CONSTANT(cudaErrorMemoryAllocation, 2)
CUDA_CONSTANT(cudaErrorInsufficientDriver, 35)
CUDA_CONSTANT(cudaErrorNoDevice, 100)
CUDA_CONSTANT(cudaErrorECCUncorrectable, 214)
CUDA_CONSTANT(cudaErrorNvlinkUncorrectable, 220)
CUDA_CONSTANT(cudaErrorContained, 226)
CUDA_CONSTANT(cudaErrorInvalidResourceHandle, 400)
CUDA_CONSTANT(cudaErrorNotReady, 600)
CUDA_CONSTANT(cudaErrorPeerAccessAlreadyEnabled, 704)
CUDA_CONSTANT(cudaErrorLaunchFailure, 719)
CUDA_CONSTANT(cudaErrorStreamCaptureUnsupported, 900)
CUDA_CONSTANT(cudaErrorStreamCaptureInvalidated, 901)
CUDA_CONSTANT(cudaErrorStreamCaptureMerge, 902)
CUDA_CONSTANT(cudaErrorStreamCaptureUnmatched, 903)
CUDA_CONSTANT(cudaErrorStreamCaptureUnjoined, 904)
CUDA_CONSTANT(cudaErrorStreamCaptureIsolation, 905)
CUDA_CONSTANT(cudaErrorCapturedEvent, 907)
CUDA_CONSTANT(cudaErrorStreamCaptureWrongThread, 908)
CUDA_CONSTANT(cudaDevAttrMultiProcessorCount, 16)
CUDA_CONSTANT(cudaDevAttrGlobalMemoryBusWidth, 37)
CUDA_CONSTANT(cudaDevAttrComputeCapabilityMajor, 75)
CUDA_CONSTANT(cudaDevAttrComputeCapabilityMinor, 76)
CUDA_CONSTANT(cudaMemoryTypeHost, 1)
CUDA_CONSTANT(cudaStreamCaptureModeThreadLocal, 1)
CUDA_CONSTANT(cudaMemoryTypeDevice, 2)
CUDA_CONSTANT(cudaMemcpyHostToDevice, 1)
CUDA_CONSTANT(cudaMemcpyDeviceToHost, 2)
CUDA_CONSTANT(cudaMemcpyDeviceToDevice, 3)
CUDA_CONSTANT(cudaStreamNonBlocking, 1)
CUDA_CONSTANT(cudaEventDisableTiming, 2)
CUDA_CONSTANT(CUDA_R_32F, 0)
CUDA_CONSTANT(CUDA_R_16F, 2)
CUDA_CONSTANT(CUDA_R_16BF, 14)
CUDA_CONSTANT(CUBLAS_COMPUTE_32F, 68)
CUDA_CONSTANT(CUBLAS_COMPUTE_32F_FAST_TF32, 77)
CUDA_CONSTANT(CUBLAS_STATUS_INVALID_VALUE, 7)
CUDA_CONSTANT(CUBLAS_STATUS_ARCH_MISMATCH, 8)
CUDA_CONSTANT(CUBLAS_STATUS_NOT_SUPPORTED, 15)
CUDA_CONSTANT(CUBLAS_OP_N, 0)
CUDA_CONSTANT(CUBLAS_OP_T, 1)
CUDA_CONSTANT(CUBLASLT_MATMUL_DESC_TRANSA, 3)
CUDA_CONSTANT(CUBLASLT_MATMUL_DESC_TRANSB, 4)
CUDA_CONSTANT(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)
CUDA_CONSTANT(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)
CUDA_CONSTANT(CUBLASLT_EPILOGUE_DEFAULT, 1)
CUDA_CONSTANT(CUBLASLT_EPILOGUE_BIAS, 4)
CUDA_CONSTANT(CUBLASLT_EPILOGUE_BGRADA, 256)
CUDA_CONSTANT(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)
CUDA_CONSTANT(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)
CUDA_CONSTANT(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)
CUDA_CONSTANT(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)
CUDA_CONSTANT(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)
CUDA_CONSTANT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)
CUDA_CONSTANT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)
CUDA_CONSTANT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)
CUDA_CONSTANT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)
CUDA_CONSTANT(CUDNN_STATUS_BAD_PARAM, 2000)
CUDA_CONSTANT(CUDNN_STATUS_NOT_SUPPORTED, 3000)
CUDA_CONSTANT(CUDNN_DATA_FLOAT, 0)
CUDA_CONSTANT(CUDNN_DATA_HALF, 2)
CUDA_CONSTANT(CUDNN_DATA_BFLOAT16, 9)
CUDA_CONSTANT(CUDNN_TENSOR_NHWC, 1)
CUDA_CONSTANT(CUDNN_CROSS_CORRELATION, 1)
CUDA_CONSTANT(CUDNN_PROPAGATE_NAN, 1)
CUDA_CONSTANT(CUDNN_POOLING_MAX, 0)
CUDA_CONSTANT(CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, 2)
CUDA_CONSTANT(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, 1)
CUDA_CONSTANT(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 2)
CUDA_CONSTANT(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 3)
CUDA_CONSTANT(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, 4)
CUDA_CONSTANT(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)
CUDA_CONSTANT(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, 10)
CUDA_CONSTANT(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, 11)
CUDA_CONSTANT(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, 12)
CUDA_CONSTANT(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)
CUDA_CONSTANT(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)
CUDA_CONSTANT(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, 0)
CUDA_CONSTANT(CUDNN_BACKEND_TENSOR_DESCRIPTOR, 17)
CUDA_CONSTANT(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, 16)
CUDA_CONSTANT(CUDNN_TYPE_HANDLE, 0)
CUDA_CONSTANT(CUDNN_TYPE_DATA_TYPE, 1)
CUDA_CONSTANT(CUDNN_TYPE_BOOLEAN, 2)
CUDA_CONSTANT(CUDNN_TYPE_INT64, 3)
CUDA_CONSTANT(CUDNN_TYPE_FLOAT, 4)
CUDA_CONSTANT(CUDNN_TYPE_VOID_PTR, 6)
CUDA_CONSTANT(CUDNN_TYPE_CONVOLUTION_MODE, 7)
CUDA_CONSTANT(CUDNN_TYPE_HEUR_MODE, 8)
CUDA_CONSTANT(CUDNN_TYPE_NUMERICAL_NOTE, 11)
CUDA_CONSTANT(CUDNN_TYPE_BACKEND_DESCRIPTOR, 15)
CUDA_CONSTANT(CUDNN_TYPE_POINTWISE_MODE, 14)
CUDA_CONSTANT(CUDNN_TYPE_BEHAVIOR_NOTE, 19)
CUDA_CONSTANT(CUDNN_TYPE_NAN_PROPOGATION, 10)
CUDA_CONSTANT(CUDNN_ATTR_POINTWISE_MODE, 0)
CUDA_CONSTANT(CUDNN_ATTR_POINTWISE_MATH_PREC, 1)
CUDA_CONSTANT(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, 2)
CUDA_CONSTANT(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 100)
CUDA_CONSTANT(CUDNN_ATTR_CONVOLUTION_CONV_MODE, 101)
CUDA_CONSTANT(CUDNN_ATTR_CONVOLUTION_DILATIONS, 102)
CUDA_CONSTANT(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 103)
CUDA_CONSTANT(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 104)
CUDA_CONSTANT(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 105)
CUDA_CONSTANT(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 106)
CUDA_CONSTANT(CUDNN_ATTR_ENGINEHEUR_MODE, 200)
CUDA_CONSTANT(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)
CUDA_CONSTANT(CUDNN_ATTR_ENGINEHEUR_RESULTS, 202)
CUDA_CONSTANT(CUDNN_ATTR_ENGINECFG_ENGINE, 300)
CUDA_CONSTANT(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, 400)
CUDA_CONSTANT(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)
CUDA_CONSTANT(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 700)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 701)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 702)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 703)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, 704)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, 705)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 706)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 707)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 708)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, 709)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, 710)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, 711)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 712)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 713)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 714)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, 715)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, 716)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, 717)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, 751)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, 752)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, 753)
CUDA_CONSTANT(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, 800)
CUDA_CONSTANT(CUDNN_ATTR_OPERATIONGRAPH_OPS, 801)
CUDA_CONSTANT(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 900)
CUDA_CONSTANT(CUDNN_ATTR_TENSOR_DATA_TYPE, 901)
CUDA_CONSTANT(CUDNN_ATTR_TENSOR_DIMENSIONS, 902)
CUDA_CONSTANT(CUDNN_ATTR_TENSOR_STRIDES, 903)
CUDA_CONSTANT(CUDNN_ATTR_TENSOR_UNIQUE_ID, 906)
CUDA_CONSTANT(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 907)
CUDA_CONSTANT(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)
CUDA_CONSTANT(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, 1001)
CUDA_CONSTANT(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 1003)
CUDA_CONSTANT(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1301)
CUDA_CONSTANT(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, 1303)
CUDA_CONSTANT(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, 1305)
CUDA_CONSTANT(CUDNN_POINTWISE_ADD, 0)
CUDA_CONSTANT(CUDNN_POINTWISE_RELU_FWD, 100)
CUDA_CONSTANT(CUDNN_HEUR_MODE_A, 3)
CUDA_CONSTANT(CUDNN_HEUR_MODE_FALLBACK, 2)
CUDA_CONSTANT(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0)
CUDA_CONSTANT(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)
CUDA_CONSTANT(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)
CUDA_CONSTANT(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 4)
CUDA_CONSTANT(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, 0)
CUDA_CONSTANT(CUDNN_DATA_INT32, 4)
CUDA_CONSTANT(CUDNN_DATA_BOOLEAN, 11)
CUDA_CONSTANT(CUDNN_REDUCE_TENSOR_ADD, 0)
CUDA_CONSTANT(CUDNN_REDUCE_TENSOR_MAX, 3)
CUDA_CONSTANT(CUDNN_POINTWISE_MUL, 1)
CUDA_CONSTANT(CUDNN_POINTWISE_DIV, 6)
CUDA_CONSTANT(CUDNN_POINTWISE_SUB, 9)
CUDA_CONSTANT(CUDNN_POINTWISE_EXP, 13)
CUDA_CONSTANT(CUDNN_POINTWISE_LOG, 15)
CUDA_CONSTANT(CUDNN_POINTWISE_CMP_GE, 303)
CUDA_CONSTANT(CUDNN_POINTWISE_GEN_INDEX, 501)
CUDA_CONSTANT(CUDNN_POINTWISE_BINARY_SELECT, 601)
CUDA_CONSTANT(CUDNN_ATTR_POINTWISE_AXIS, 9)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, 758)
CUDA_CONSTANT(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 908)
CUDA_CONSTANT(CUDNN_BACKEND_MATMUL_DESCRIPTOR, 18)
CUDA_CONSTANT(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)
CUDA_CONSTANT(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, 21)
CUDA_CONSTANT(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)
CUDA_CONSTANT(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)
CUDA_CONSTANT(CUDNN_ATTR_MATMUL_COMP_TYPE, 1500)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_MATMUL_ADESC, 1520)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_MATMUL_BDESC, 1521)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_MATMUL_CDESC, 1522)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_MATMUL_DESC, 1523)
CUDA_CONSTANT(CUDNN_ATTR_REDUCTION_OPERATOR, 1600)
CUDA_CONSTANT(CUDNN_ATTR_REDUCTION_COMP_TYPE, 1601)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 1610)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, 1611)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_REDUCTION_DESC, 1612)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, 2200)
CUDA_CONSTANT(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, 2201)
CUDA_CONSTANT(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 18)
#undef CUDA_CONSTANT
#endif
