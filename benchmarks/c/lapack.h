/* The routines of BLAS and LAPACK that the C files use, as pointers, so that nothing must be linked. */
#ifndef LAPACK_H
#define LAPACK_H

typedef struct {
    void (*dsymm)(const char *, const char *, int *, int *, const double *, const double *, int *,
                  const double *, int *, const double *, double *, int *);
    void (*dgetrf)(int *, int *, double *, int *, int *, int *);
    void (*dgetrs)(const char *, int *, int *, double *, int *, int *, double *, int *, int *);
    void (*dtrsm)(const char *, const char *, const char *, const char *, int *, int *, const double *,
                  const double *, int *, double *, int *);
    void (*dsyrk)(const char *, const char *, int *, int *, const double *, const double *, int *,
                  const double *, double *, int *);
    void (*dgemv)(const char *, int *, int *, const double *, const double *, int *, const double *, int *,
                  const double *, double *, int *);
    void (*dposv)(const char *, int *, int *, double *, int *, double *, int *, int *);
    void (*dpotrf)(const char *, int *, double *, int *, int *);
    void (*dpotrs)(const char *, int *, int *, const double *, int *, double *, int *, int *);
} Lapack;

#endif
