# How a team of threads shares tasks.

cdef extern from "tasks.h" nogil:
    ctypedef struct Tasks:
        pass
    void share_tasks(Tasks *tasks, Py_ssize_t number, Py_ssize_t threads) noexcept
    Py_ssize_t next_task(Tasks *tasks, Py_ssize_t thread, Py_ssize_t *tried) noexcept
