"""Reading token ids out of Python ints."""

from cpython.ref cimport PyObject

cdef extern from *:
    """
    /* An int that fits a machine word, as nearly every token id does: without a call. */
    static inline int small_int(PyObject *value, long long *out) {
    #if PY_VERSION_HEX >= 0x030C0000
        if (!PyLong_CheckExact(value) || !PyUnstable_Long_IsCompact((PyLongObject *)value)) return 0;
        *out = (long long)PyUnstable_Long_CompactValue((PyLongObject *)value);
    #else
        if (!PyLong_CheckExact(value) || (size_t)Py_SIZE(value) > 1) return 0;
        *out = Py_SIZE(value) ? (long long)((PyLongObject *)value)->ob_digit[0] : 0;
    #endif
        return 1;
    }
    """
    bint small_int(PyObject *value, long long *out)
