// SPDX-License-Identifier: Apache-2.0
// The calls, objects and constants of Open MPI that the plugin uses, with our own declarations:
// what is written here and in calls.h is all that its C code needs to be compiled. A test compares
// each with mpi.h where that is found.
//
// Whoever includes this defines MPI_CALL(name, arguments), MPI_OBJECT(name, symbol) or
// MPI_CONSTANT(name, value).

#ifdef MPI_CALL
MPI_CALL(MPI_Initialized, (int *flag))
MPI_CALL(MPI_Finalized, (int *flag))
MPI_CALL(MPI_Init_thread, (int *argc, char ***argv, int required, int *provided))
MPI_CALL(MPI_Query_thread, (int *provided))
MPI_CALL(MPI_Finalize, (void))
MPI_CALL(MPI_Get_library_version, (char *version, int *length))
MPI_CALL(MPI_Error_string, (int error, char *text, int *length))
MPI_CALL(MPI_Comm_size, (mpi_comm comm, int *size))
MPI_CALL(MPI_Comm_rank, (mpi_comm comm, int *rank))
MPI_CALL(MPI_Comm_split, (mpi_comm comm, int color, int key, mpi_comm *out))
MPI_CALL(MPI_Comm_set_errhandler, (mpi_comm comm, mpi_errhandler handler))
MPI_CALL(MPI_Iallreduce, (const void *from, void *to, int count, mpi_datatype type, mpi_op op,
                          mpi_comm comm, mpi_request *request))
MPI_CALL(MPI_Ireduce, (const void *from, void *to, int count, mpi_datatype type, mpi_op op,
                       int root, mpi_comm comm, mpi_request *request))
MPI_CALL(MPI_Ireduce_scatter, (const void *from, void *to, const int counts[], mpi_datatype type,
                               mpi_op op, mpi_comm comm, mpi_request *request))
MPI_CALL(MPI_Ibcast, (void *buffer, int count, mpi_datatype type, int root, mpi_comm comm,
                      mpi_request *request))
MPI_CALL(MPI_Ialltoall,
         (const void *from, int send_count, mpi_datatype send_type, void *to, int receive_count,
          mpi_datatype receive_type, mpi_comm comm, mpi_request *request))
MPI_CALL(MPI_Ibarrier, (mpi_comm comm, mpi_request *request))
MPI_CALL(MPI_Test, (mpi_request * request, int *flag, void *status))
MPI_CALL(MPI_Op_create, (mpi_function * function, int commutes, mpi_op *op))
#undef MPI_CALL
#endif

#ifdef MPI_OBJECT
MPI_OBJECT(MPI_COMM_WORLD, ompi_mpi_comm_world)
MPI_OBJECT(MPI_ERRORS_RETURN, ompi_mpi_errors_return)
MPI_OBJECT(MPI_FLOAT, ompi_mpi_float)
MPI_OBJECT(MPI_DOUBLE, ompi_mpi_double)
MPI_OBJECT(MPI_INT32_T, ompi_mpi_int32_t)
MPI_OBJECT(MPI_INT64_T, ompi_mpi_int64_t)
MPI_OBJECT(MPI_UINT8_T, ompi_mpi_uint8_t)
MPI_OBJECT(MPI_UINT16_T, ompi_mpi_uint16_t)
MPI_OBJECT(MPI_SUM, ompi_mpi_op_sum)
MPI_OBJECT(MPI_PROD, ompi_mpi_op_prod)
MPI_OBJECT(MPI_MIN, ompi_mpi_op_min)
MPI_OBJECT(MPI_MAX, ompi_mpi_op_max)
#undef MPI_OBJECT
#endif

#ifdef MPI_CONSTANT
MPI_CONSTANT(MPI_SUCCESS, 0)
MPI_CONSTANT(MPI_THREAD_SERIALIZED, 2)
MPI_CONSTANT(MPI_THREAD_MULTIPLE, 3)
MPI_CONSTANT(MPI_MAX_ERROR_STRING, 256)
MPI_CONSTANT(MPI_MAX_LIBRARY_VERSION_STRING, 256)
#undef MPI_CONSTANT
#endif
